"""The command line `batchyard`: everything an operator or a newcomer types.

Rules: a command's module is imported only when that command runs (`--help` and `version` stay
fast); nothing of the scheduler or the agent is imported, they are started as processes.
"""
