"""How does the scheduler talk with clients, nodes and operators? It decides nothing here."""
