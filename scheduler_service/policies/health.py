"""Is this node an outlier?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scheduler_service.core.interfaces import OutlierView


@dataclass(frozen=True, slots=True)
class Outlier:
    """So many errors in a row, or far fewer successes than the other nodes have.

    The second rule needs `nodes` nodes that each had `requests` attempts in ten seconds: a node is
    out when its share of successes is below their mean less `deviations` standard deviations. A
    fault that all nodes have makes none of them an outlier by it.
    """

    errors: int = 5
    deviations: float = 1.9
    nodes: int = 5
    requests: int = 100

    def why_eject(self, view: OutlierView) -> str:
        """The rule that it breaks."""
        if self.errors and view.errors_in_row >= self.errors:
            return f"{view.errors_in_row} errors in a row"
        total = view.succeeded + view.failed
        if total < max(1, self.requests):
            return ""
        shares = [ok / (ok + bad) for ok, bad in view.pool if ok + bad >= self.requests]
        if len(shares) < max(2, self.nodes):
            return ""
        mean = math.fsum(shares) / len(shares)
        spread = math.sqrt(math.fsum((s - mean) ** 2 for s in shares) / len(shares))
        share = view.succeeded / total
        if share < mean - self.deviations * spread:
            return f"{share:.1%} of its attempts succeed, {mean:.1%} on average"
        return ""


@dataclass(frozen=True, slots=True)
class Trusting:
    """No node is, whatever it does."""

    def why_eject(self, view: OutlierView) -> str:
        """Nothing is."""
        return ""
