"""Which experiments are there?"""

from __future__ import annotations

from typing import Final

from simulator.experiments.e1 import E1
from simulator.experiments.verdicts import Experiment

EXPERIMENTS: Final[dict[str, Experiment]] = {e.name: e for e in (E1,)}
