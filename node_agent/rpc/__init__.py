"""How does the agent talk with its scheduler? One stream, packed messages, one writer."""
