"""`batchyard dev`: a scheduler and agents as one process tree.

Ownership: `Tree` owns every process it started. A child gets a pipe as its standard input and
exits when that closes (`--exit-with-stdin`), so none outlives this process, SIGKILL included. Each
child leads its own session, so that Ctrl-C reaches only this process and the stop is ordered:
agents drain first, then the scheduler, each within a bound, then SIGKILL.
"""
