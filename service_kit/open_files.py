"""How many connections and files may this process have open? As many as its hard limit says.

Shells start processes with a low soft limit (1,024 on most systems), for the sake of programs that
use select(); none of ours does. Where it stays low, that many idle connections keep everybody out.
"""

from __future__ import annotations

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

ENOUGH = 1 << 20  # where the hard limit is "unlimited"


def raise_limit() -> int:
    """Raise the soft limit as far as it goes; the limit from now on, 0: there is none here."""
    if resource is None:
        return 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return soft  # some systems have a lower bound of their own
    return wanted
