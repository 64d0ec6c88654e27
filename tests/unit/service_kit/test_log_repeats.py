"""What comes again and again is told a few times, and then how often."""

from __future__ import annotations

import logging

from service_kit.log_repeats import KEYS_MAX, LINES_MAX, WINDOW_S, Repeats


class World:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.repeats = Repeats(lambda: self.now_s)

    def log(self, text: str, *, level: int = logging.WARNING, **fields: object) -> int | None:
        """Whether it passes: None: not; else how many it says were suppressed before it."""
        made = logging.LogRecord("a.b", level, "f", 1, text, None, None)
        made.__dict__.update(fields)
        return getattr(made, "suppressed", 0) if self.repeats.filter(made) else None


def test_the_first_few_pass_and_the_next_window_says_how_many_did_not() -> None:
    world = World()
    told = [world.log("slow: %s") for _ in range(LINES_MAX + 300)]
    assert told.count(None) == 300
    assert world.log("another") == 0
    world.now_s += WINDOW_S
    assert world.log("slow: %s") == 300
    assert world.log("slow: %s") == 0


def test_what_nothing_follows_is_told_by_a_line_of_its_own_once() -> None:
    world = World()
    for _ in range(LINES_MAX + 7):
        world.log("slow: %s")
    assert world.repeats.overdue() == [], "its window goes on"
    world.now_s += WINDOW_S
    (line,) = world.repeats.overdue()
    assert (line.getMessage(), line.levelno) == ("repeated: slow: %s", logging.WARNING)
    assert (line.event, line.suppressed) == ("log_repeated", 7)
    assert world.repeats.overdue() == []


def test_information_and_places_of_refusal_are_not_mixed_up() -> None:
    world = World()
    for _ in range(LINES_MAX):
        world.log("refused", place="call")
    assert world.log("refused", place="call") is None
    assert world.log("refused", place="session") == 0
    assert all(world.log("fine", level=logging.INFO) == 0 for _ in range(10 * LINES_MAX))


def test_texts_without_end_take_a_bounded_room() -> None:
    world = World()
    for number in range(3 * KEYS_MAX):
        world.log(f"text {number}")
    assert len(world.repeats._windows) <= KEYS_MAX + 1
