"""Who may do what here? Identity, rights, limits; `docs/security.md` has the whole picture."""
