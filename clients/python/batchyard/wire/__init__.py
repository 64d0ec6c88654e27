"""Private twins of the public messages; see wire/v1."""
