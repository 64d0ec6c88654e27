"""Run all tests, in two halves at once: one mostly computes, the other mostly waits for processes.

The computing half runs at low priority, so it takes what the other leaves of the machine and hardly
delays it; its output comes at the end. Tests are in one half or the other by folder, and what is
not named here is in the waiting one: none is left out. Arguments are pytest's, for both.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from typing import IO, Final

COMPUTING: Final = (
    "tests/contract",
    "tests/property",
    "tests/simulation",
    "tests/tidy",
    "tests/unit",
)
NICENESS: Final = 10
TIMEOUT_S: Final = 600  # of one of its tests: it may wait for the processor for long
_NONE_COLLECTED: Final = 5  # an exit code of pytest: with `-k`, say, one half may have none


def main(arguments: list[str]) -> int:
    """The exit code of pytest: of the half that fared worse."""
    pytest = [sys.executable, "-m", "pytest", *arguments]
    print(f"at the same time, shown at the end: {' '.join(COMPUTING)}", flush=True)
    with tempfile.TemporaryFile() as output:
        beside = _start_computing(pytest, output)
        try:
            waiting = subprocess.run(
                [*pytest, *(f"--ignore={folder}" for folder in COMPUTING)], check=False
            ).returncode
            computing = beside.wait()
        finally:
            beside.terminate()
            beside.wait()
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout.buffer)
            sys.stdout.flush()
    ran = [code for code in (waiting, computing) if code != _NONE_COLLECTED]
    return max(ran, key=abs) if ran else _NONE_COLLECTED


def _start_computing(pytest: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    own = ["-o", "cache_dir=.pytest_cache/computing", "-o", f"timeout={TIMEOUT_S}"]
    return subprocess.Popen(
        ["nice", "-n", str(NICENESS), *pytest, *own, *COMPUTING],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
