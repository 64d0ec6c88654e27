"""Outliers, by worked examples."""

from __future__ import annotations

import pytest

from scheduler_service.core.interfaces import OutlierView
from scheduler_service.policies.health import Outlier

GOOD = (100, 0)


@pytest.mark.parametrize(
    ("view", "out"),
    [
        (OutlierView(4, 0, 0, ()), False),
        (OutlierView(5, 0, 0, ()), True),
        # Shares .8 and nine of 1: mean .98, deviation .06; .8 < .98 - 1.9 * .06 = .866.
        (OutlierView(0, 80, 20, [(80, 20), *[GOOD] * 9]), True),
        # The same with fewer than a hundred attempts, or with only four nodes.
        (OutlierView(0, 79, 20, [(79, 20), *[GOOD] * 9]), False),
        (OutlierView(0, 80, 20, [(80, 20), *[GOOD] * 3]), False),
        # Nodes with few attempts do not count as others.
        (OutlierView(0, 80, 20, [(80, 20), *[(9, 0)] * 9]), False),
        # Half of them fail alike: .5 is not below .75 - 1.9 * .25.
        (OutlierView(0, 50, 50, [(50, 50)] * 5 + [GOOD] * 5), False),
    ],
)
def test_outlier(view: OutlierView, out: bool) -> None:
    assert bool(Outlier().why_eject(view)) is out


def test_errors_in_a_row_may_be_switched_off() -> None:
    assert Outlier(errors=0).why_eject(OutlierView(99, 0, 0, ())) == ""
