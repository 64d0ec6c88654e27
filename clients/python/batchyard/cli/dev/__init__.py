"""`batchyard dev`: a scheduler and agents as one process tree.

Ownership: `Tree` owns every process it started, and holds each on a leash (`leash.py`), so that
none outlives this process, SIGKILL included. Each child leads its own session, so that Ctrl-C
reaches only this process and the stop is ordered: agents drain first, then the scheduler, each
within a bound, then SIGKILL.
"""
