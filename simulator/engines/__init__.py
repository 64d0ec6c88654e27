"""How long does work take on a node? Engine models that answer as engines do."""

from simulator.engines.independent import IndependentEngine
from simulator.engines.interface import Engine, Host, Work

__all__ = ["Engine", "Host", "IndependentEngine", "Work"]
