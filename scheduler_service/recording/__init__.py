"""What did the core hear, and what did it decide? Written down, to be run again.

`file.py` keeps a bounded private file; `codec.py` turns values into JSON by their types, leaving
out what callers wrote and models said; `policies.py` does so for the policies in force;
`decisions.py` puts commands into words; `scheduler.py` is a core that is recorded; `reader.py`
reads a file back; `replay.py` runs it through a core and compares.

Only the core, its policies and the standard library: the service and the simulator both record.
"""
