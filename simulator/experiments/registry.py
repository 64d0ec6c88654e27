"""Which experiments are there?"""

from __future__ import annotations

from typing import Final

from simulator.experiments.e1 import E1
from simulator.experiments.e2 import E2
from simulator.experiments.e3 import E3
from simulator.experiments.e4 import E4
from simulator.experiments.e5 import E5
from simulator.experiments.e6 import E6
from simulator.experiments.night import NIGHT
from simulator.experiments.night_live import NIGHT_LIVE
from simulator.experiments.policies import POLICIES
from simulator.experiments.scale import SCALE
from simulator.experiments.verdicts import Experiment

EXPERIMENTS: Final[dict[str, Experiment]] = {
    e.name: e for e in (E1, E2, E3, E4, E5, E6, POLICIES, NIGHT, SCALE, NIGHT_LIVE)
}
