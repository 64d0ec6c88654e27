"""`batchyard demo`: plays the peak of an inference service against real processes, and proves it.

What runs: a scheduler, two primary agents and a backup as a process tree (`stage.py`), a collector
of traces inside this process (`traces.py`), and one client (`calls.py`). What happens, in order, is
`play.py`. Nothing is taken on trust: `checks.py` holds each promise against results, events, the
report and the trace (`evidence.py`), and one that does not hold makes the exit code 1.
"""

from batchyard.cli.demo.command import demo

__all__ = ["demo"]
