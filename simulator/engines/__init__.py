"""How long does work take on a node? Engine models that answer as engines do."""

from simulator.engines.continuous import ContinuousEngine, ContinuousProfile
from simulator.engines.independent import IndependentEngine, given, linear
from simulator.engines.interface import Engine, Host, Make, Work
from simulator.engines.static import StaticEngine, affine, generation, padded

__all__ = [
    "ContinuousEngine",
    "ContinuousProfile",
    "Engine",
    "Host",
    "IndependentEngine",
    "Make",
    "StaticEngine",
    "Work",
    "affine",
    "generation",
    "given",
    "linear",
    "padded",
]
