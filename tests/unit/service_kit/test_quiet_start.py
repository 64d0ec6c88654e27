"""Ctrl-C while a service loads."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["scheduler_service", "node_agent"])
def test_interrupt_of_a_service_that_loads_ends_it_without_a_traceback(module: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", module, "--show-config"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:  # one for each module that is loaded
            if "service_kit.quiet_start" in line:
                break
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode in (-signal.SIGINT, 130)
    assert "Traceback" not in said
