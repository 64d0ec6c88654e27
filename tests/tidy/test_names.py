"""Names say what is inside, and no text knows the machine it was written on."""

from __future__ import annotations

import re

from tests.tidy.source_tree import files, inside, refuse, text_files

# They say nothing about what is inside, so everything ends up inside.
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "base"}
MACHINE = re.compile(r"(?<![\w.~/-])/(?:home|root|Users|work|tmp)/[\w.]")
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def test_no_file_has_a_vague_name() -> None:
    vague = [inside(p) for p in files(".py", ".proto") if VAGUE & {p.stem, *p.parent.parts[-1:]}]
    refuse("name it by what it holds", vague)


def test_no_text_names_a_place_on_one_machine() -> None:
    refuse("no path of one machine", matches(MACHINE))


def test_nothing_is_left_to_do_in_comments() -> None:
    refuse("finish it, or say so in an issue", matches(UNFINISHED))


def matches(pattern: re.Pattern[str]) -> list[str]:
    """Return every line of the project that the pattern is found in."""
    return [
        f"{inside(path)}:{number}: {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
