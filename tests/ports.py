"""Ports for `batchyard dev`, whose processes need four in a row."""

from __future__ import annotations

import os
import socket

HOST = "127.0.0.1"
FIRST, LAST, STEP = 21_000, 31_000, 10


def free_base() -> int:
    """The first of four free ports in a row; another run on this machine looks elsewhere first."""
    count = (LAST - FIRST) // STEP
    for number in range(count):
        base = FIRST + (os.getpid() * 97 + number) % count * STEP
        try:
            for port in range(base, base + 4):
                with socket.socket() as probe:
                    probe.bind((HOST, port))
        except OSError:
            continue
        return base
    raise AssertionError("no four free ports in a row")
