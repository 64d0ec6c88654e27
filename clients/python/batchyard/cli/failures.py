"""Which text and which exit code a failure gets: one place for both."""

from __future__ import annotations

OK = 0
FAILURE = 1
USAGE = 2
UNREACHABLE = 3
DEADLINE = 4
PARTIAL = 5
INTERRUPTED = 130


class CliError(Exception):
    """A failure to tell the user about: what happened, why, and what to type next."""

    def __init__(
        self, what: str, *, why: str = "", next_step: str = "", exit_code: int = FAILURE
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_step = next_step
        self.exit_code = exit_code

    @classmethod
    def stream_ended(cls) -> CliError:
        """What was to be followed until Ctrl-C is over."""
        return cls(
            "the scheduler ended the stream",
            why="it stops or restarts",
            next_step="the same again when it is back",
            exit_code=UNREACHABLE,
        )

    def text(self) -> str:
        """The lines for standard error."""
        lines = [f"error: {self.what}"]
        if self.why:
            lines.append(f"why:   {self.why}")
        if self.next_step:
            lines.append(f"next:  {self.next_step}")
        return "\n".join(lines)
