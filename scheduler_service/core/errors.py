"""What is our own fault?"""


class InvariantViolation(Exception):
    """The core's state contradicts itself: a bug here, never a fault of a caller or a node."""
