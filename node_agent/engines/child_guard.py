"""Runs an engine's server for the agent, and never lets it outlive the agent.

Servers that are not ours do not watch for their parent. This small process does it for them: it
starts the command in a session of its own, passes its output on, and exits as it exits. When its
standard input closes (the agent is gone, however that came), or it is told to end itself, it ends
the whole session of the server: politely, and by force after 5 s. A line "kill" ends it by force at
once.

    python -m node_agent.engines.child_guard COMMAND ARGUMENT...
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

POLITE_S = 5.0


def main(command: list[str]) -> int:
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: told.set())
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    threading.Thread(target=_end_with_parent, args=(child,), daemon=True).start()
    threading.Thread(target=_end_when_told, args=(child, told), daemon=True).start()
    status = child.wait()
    _signal(child, signal.SIGKILL)  # whatever else the server had started
    return status if status >= 0 else 128 - status


def _end_with_parent(child: subprocess.Popen[bytes]) -> None:
    for line in sys.stdin:
        if line.strip() == "kill":
            _signal(child, signal.SIGKILL)
            return
    _end(child)


def _end_when_told(child: subprocess.Popen[bytes], told: threading.Event) -> None:
    told.wait()
    _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    _signal(child, signal.SIGTERM)
    try:
        child.wait(POLITE_S)
    except subprocess.TimeoutExpired:
        _signal(child, signal.SIGKILL)


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # at once: the thread may still wait for the agent
