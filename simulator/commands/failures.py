"""What can a user have said wrong?"""


class UsageError(Exception):
    """An option cannot be understood; the message says which, and what would be right."""
