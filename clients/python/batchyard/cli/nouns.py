"""A noun with verbs: without one it lists."""

from __future__ import annotations

import click

_HELP = ("--help", "-h")


class NounGroup(click.Group):
    """`batchyard nodes` is `batchyard nodes list`, with its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `list` where the verb is missing."""
        if not args or (args[0].startswith("-") and args[0] not in _HELP):
            args = ["list", *args]
        return super().parse_args(ctx, args)
