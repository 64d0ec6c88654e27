"""A low soft limit of open files is raised as far as it may be."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512))
from service_kit.open_files import raise_limit
print(raise_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
print(raise_limit())
"""


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["512", "512", "512", "512"]
