"""What schedules requests onto nodes? A pure core, its policies, and adapters around them."""
