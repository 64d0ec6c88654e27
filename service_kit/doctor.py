"""How is a check-up told? One thing that was looked at, how it stands, and what to do."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Finding:
    """One thing that was looked at."""

    sound: bool | None  # None: worth knowing, and nothing has to be done
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        mark = {True: "ok  ", False: "FAIL", None: "note"}[self.sound]
        return f"{mark}  {self.what}" + (f"\n      -> {self.remedy}" if self.remedy else "")

    def row(self) -> dict[str, str]:
        """As a row of `batchyard doctor`; what is before the first ": " is what was looked at."""
        check, _, says = self.what.partition(": ")
        note = "warning" if self.remedy else "ok"
        result = {True: "ok", False: "failed", None: note}[self.sound]
        return {"check": check, "result": result, "says": says, "fix": self.remedy}


def found(check: str, sound: bool | None, says: str, remedy: str = "") -> Finding:
    """What `check` showed."""
    return Finding(sound, f"{check}: {says}", remedy)


def say(finding: Finding) -> bool:
    """Print it at once; whether it fails."""
    sys.stdout.write(f"{finding}\n")
    sys.stdout.flush()
    return finding.sound is False
