"""Who asks for what, and when? Traces, arrival processes, tenants and priorities."""

from simulator.workload.arrival import Arrival

__all__ = ["Arrival"]
