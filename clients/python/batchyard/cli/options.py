"""Option types and the options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from batchyard.cli.settings import FORMATS, Settings

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
PRIORITY_TEXT = "1..10, 10 = most urgent"


class DurationType(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4
    """A duration such as 500ms, 2s or 5m; the value is in seconds."""

    name = "duration"

    def __init__(self, *, minimum_s: float = 0.0) -> None:
        self.minimum_s = minimum_s

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        # Not at the top: it imports protobuf, which `--help` need not wait for.
        from batchyard.durations import parse_duration
        from batchyard.errors import InvalidRequest

        try:
            seconds = parse_duration(str(value), "")
        except InvalidRequest:
            self.fail(f"{value!r} is not a duration: write 500ms, 2s, 1m30s or 5m", param, ctx)
        if seconds < self.minimum_s:
            self.fail(f"{value!r} is too short: at least {self.minimum_s:g}s", param, ctx)
        return seconds


class PriorityRange(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4
    """One priority, or two with a dash between: least and most."""

    name = "priorities"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        least, dash, most = str(value).partition("-")
        pair = (least, most if dash else least)
        if not all(each.isdigit() and 1 <= int(each) <= 10 for each in pair):
            self.fail(
                f"{value!r}: write a priority of {PRIORITY_TEXT}, or a range as 1-4", param, ctx
            )
        return int(pair[0]), int(pair[1])


PRIORITIES = PriorityRange()

reason_option = click.option("--reason", default="", help="Why; kept in the event.")


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def store(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(ctx.ensure_object(Settings), name, value)

    return store


def _setting(*names: str, keeps: str, **attributes: Any) -> Callable[[Decorated], Decorated]:
    return click.option(*names, expose_value=False, callback=_keep(keeps), **attributes)


def output_option(command: Decorated, formats: Sequence[str] = FORMATS) -> Decorated:
    """`-o`, on every command that shows something."""
    return _setting(
        "-o",
        "--output",
        keeps="output",
        type=click.Choice(formats),
        help="Form of the output; without it a table on a terminal and tab-separated in a pipe.",
    )(command)


def server_options(command: Decorated, formats: Sequence[str] = FORMATS) -> Decorated:
    """Where the scheduler is, and `-o`: on every command that asks a scheduler."""
    address = _setting(
        "--address",
        keeps="address",
        metavar="HOST:PORT",
        help="The scheduler's client port [env: BATCHYARD_ADDRESS; default: 127.0.0.1:7611].",
    )
    admin = _setting(
        "--admin-address",
        keeps="admin_address",
        metavar="HOST:PORT",
        help="Its admin port [env: BATCHYARD_ADMIN_ADDRESS; default: two above the client port].",
    )
    context = _setting(
        "--context",
        keeps="context",
        metavar="NAME",
        help="A scheduler that `batchyard context save` remembered [default: the current one].",
    )
    return address(admin(context(output_option(command, formats))))


def report_options(command: Decorated) -> Decorated:
    """`server_options`, with a page as one more form of output."""
    return server_options(command, (*FORMATS, "html"))


pass_settings = click.make_pass_decorator(Settings, ensure=True)
