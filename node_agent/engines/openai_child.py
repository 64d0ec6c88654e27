"""A server that the engine keeps as its child: started on a free port, and given up when late."""

from __future__ import annotations

from node_agent.engines.guarded_process import GuardedProcess, free_port
from node_agent.engines.openai_options import OpenaiOptions


class ChildGone(Exception):
    """The child ended before it served; the text says how."""


async def start_child(options: OpenaiOptions) -> tuple[GuardedProcess, str]:
    """Start `command`; return it and the address where it will serve."""
    port = free_port()
    command = [word.replace("{port}", str(port)) for word in options.command]
    child = await GuardedProcess.start(command, options.working_directory)
    return child, f"http://127.0.0.1:{port}"


async def end_if_late(child: GuardedProcess, *, late: bool, limit_s: float, words: str) -> None:
    """End a child that is late; `words` say what it answered last.

    Raises:
        ChildGone: it had ended, or was late.
    """
    if child.exit_status is None and not late:
        return
    why = ""
    if child.exit_status is None:
        why = f"the server did not serve within {limit_s:g} s and was killed; {words}"
        child.kill()
    await child.wait()
    raise ChildGone(why or obituary(child))


def obituary(child: GuardedProcess) -> str:
    """How it ended, in words for people."""
    return f"the server's process {child.how_it_ended()}"
