"""What can be wrong with a trace file?"""


class TraceError(ValueError):
    """The file is not a trace that can be read; the message says where and what was expected."""
