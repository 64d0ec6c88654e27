"""One module per command; each is imported when it runs."""
