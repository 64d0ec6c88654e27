"""Install with pip; where no package index answers, say so in one line instead of pip's many.

`make setup` calls it with the arguments of `pip install`. Runs on the standard library only.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path

LOG = "setup.log"  # in the environment: all that pip said of what failed
_UNREACHABLE = re.compile(
    r"(?:NewConnection|ConnectTimeout|ReadTimeout|NameResolution|Proxy|SSL|Protocol)Error"
    r"|Read timed out|Connection refused"
)
_RETRY = re.compile(r"^WARNING: Retrying .*$", re.MULTILINE)
_CAUSE = re.compile(r"\[Errno -?\d+\] ([\w ,]+)|([Rr]ead timed out|certificate verify failed)")


def complaint(said: str, log: Path) -> str:
    """One line, if pip failed because no index could be reached; else empty."""
    errors = _RETRY.sub("", said)  # a try that failed may have been followed by a good one
    if not _UNREACHABLE.search(said if "(from versions: none)" in errors else errors):
        return ""
    found = _CAUSE.search(said)
    cause = f" ({(found[1] or found[2]).strip()})" if found else ""
    return (
        f"make setup: no package index can be reached{cause}. It needs the network, or an index "
        f"that pip is told of (PIP_INDEX_URL); run it again then. What pip said: {log}"
    )


def main(arguments: list[str]) -> int:
    """Run `pip install`; its exit code. Ctrl-C is pip's, which puts back what it had moved."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: None)  # none that pip would inherit
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, *arguments], stderr=subprocess.PIPE, text=True, errors="replace", check=False
    )
    if done.returncode:
        log = Path(sys.prefix, LOG)
        log.write_text(done.stderr, encoding="utf-8")
        sys.stderr.write(f"{complaint(done.stderr, log) or done.stderr.rstrip()}\n")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
