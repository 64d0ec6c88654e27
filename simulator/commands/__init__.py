"""What a user types: `batchyard simulate`, `plan` and `replay` (`python -m simulator.commands`).

Everything here reads options, runs what the rest of the package offers, and writes tables, JSON and
pages. `policy_files.py` is the only file of the simulator that knows the scheduler's configuration.
"""
