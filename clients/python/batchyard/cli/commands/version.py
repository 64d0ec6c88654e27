"""`batchyard version`: what is installed here."""

from __future__ import annotations

import platform
from importlib import metadata

import click

from batchyard.cli.options import output_option, pass_settings
from batchyard.cli.output import emit_document
from batchyard.cli.settings import Settings


@click.command()
@output_option
@pass_settings
def version(settings: Settings) -> None:
    """Print the version of batchyard; with -o json, -o yaml or -o wide of what it runs on too."""
    own = metadata.version("batchyard")
    if settings.output not in ("json", "yaml", "wide"):
        print(own if settings.output == "name" else f"batchyard {own}")
        return
    document = {
        "version": own,
        "python": platform.python_version(),
        "grpcio": metadata.version("grpcio"),
        "protobuf": metadata.version("protobuf"),
    }
    if settings.output == "wide":
        print(" ".join(f"{name} {value}" for name, value in document.items()))
    else:
        emit_document(settings.output, document)
