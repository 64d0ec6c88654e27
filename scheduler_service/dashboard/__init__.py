"""The page that shows the scheduler live, and the read-only feed behind it."""
