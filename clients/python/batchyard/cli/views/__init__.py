"""Messages as the documents that `-o json` prints; tables show the same documents."""
