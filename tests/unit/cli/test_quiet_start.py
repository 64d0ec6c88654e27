"""Ctrl-C while a service or a command loads."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "argument"),
    [
        ("scheduler_service", "--show-config"),
        ("node_agent", "--show-config"),
        ("batchyard.cli", "version"),
    ],
)
def test_interrupt_of_a_program_that_loads_ends_it_without_a_traceback(
    module: str, argument: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", module, argument],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:  # one for each module that is loaded
            if "batchyard.quiet_start" in line:
                break
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode in (-signal.SIGINT, 130)
    assert "Traceback" not in said


def test_command_line_loads_next_to_nothing_before_it_is_quiet() -> None:
    """All that is loaded earlier can be interrupted with a traceback."""
    code = (
        "import sys; before = set(sys.modules); import batchyard.quiet_start; "
        "print(*sorted(set(sys.modules) - before - {'__future__'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import re; {code}"], capture_output=True, text=True, check=True
    )  # `re`: by the script that pip makes
    assert done.stdout.split() == ["batchyard", "batchyard.quiet_start", "signal"]
