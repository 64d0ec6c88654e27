"""`batchyard completion`: the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  eval "$(batchyard completion bash)"        (in ~/.bashrc)
    zsh:   eval "$(batchyard completion zsh)"         (in ~/.zshrc)
    fish:  batchyard completion fish > ~/.config/fish/completions/batchyard.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    print(kind(ctx.find_root().command, {}, "batchyard", "_BATCHYARD_COMPLETE").source())
