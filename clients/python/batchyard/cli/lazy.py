"""A command group whose commands are imported when they are used, not when they are listed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives (`module:attribute`) and what the list of commands says about it."""

    target: str
    summary: str
    aliases: tuple[str, ...] = ()


class LazyGroup(click.Group):
    """A group of `Entry`s; an alias finds its command but is not listed."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = entries
        self._canonical = {alias: name for name, e in entries.items() for alias in e.aliases}

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        name = self._canonical.get(cmd_name, cmd_name)
        entry = self.entries.get(name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but unknown names get suggestions from the entries."""
        name = args[0]
        if name not in self.entries and name not in self._canonical and name[:1] != "-":
            raise click.exceptions.NoSuchCommand(name, possibilities=list(self.entries), ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, e.summary) for name, e in self.entries.items()])
