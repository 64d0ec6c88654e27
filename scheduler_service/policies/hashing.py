"""Randomness of policies: the core's own hash, under the name that policies import."""

from scheduler_service.core.hashing import hash64

__all__ = ["hash64"]
