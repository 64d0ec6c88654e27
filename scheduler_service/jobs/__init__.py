"""Stored work: jobs of many items, kept on disk, fed in as room allows, with one result each."""
