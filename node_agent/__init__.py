"""What does a node run? An agent: it keeps engines, and works for one scheduler."""
