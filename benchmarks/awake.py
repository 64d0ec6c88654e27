"""Do processors sleep while they wait?

An idle processor is halted, and on a virtual machine given away; until it runs again, with its
caches as they were, a tenth to half of a millisecond goes by. Who needs answers sooner has a wish
for low latency held open with the kernel (`tuned`'s profile latency-performance does so, and
cyclictest while it measures): as long as the file is open, processors that wait stay awake. Only
root may.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator

DEVICE = "/dev/cpu_dma_latency"  # Linux: a wish in microseconds, as a 32-bit number


@contextlib.contextmanager
def kept_awake() -> Iterator[bool]:
    """Ask for it while inside; whether that is possible here."""
    try:
        wish = os.open(DEVICE, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        os.write(wish, struct.pack("=i", 0))
        yield True
    finally:
        os.close(wish)
