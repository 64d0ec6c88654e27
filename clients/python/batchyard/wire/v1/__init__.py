"""Packed twins of batchyard.v1, same bytes on the wire: for servers and agents, never clients."""
