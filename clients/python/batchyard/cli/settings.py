"""Which scheduler, and which form of output: options over environment over context over default.

What a context says of tokens and TLS goes to the scheduler that it is about and to no other: a told
address takes nothing from the current context.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from batchyard.cli import contexts

DEFAULT_ADDRESS = "127.0.0.1:7611"
DEFAULT_ADMIN_ADDRESS = "127.0.0.1:7613"
# Clients and administration are two ports apart by default, and so under `dev --port-base`.
ADMIN_PORT_OFFSET = 2
FORMATS = ("table", "json", "yaml", "name", "wide")


@dataclass(slots=True)
class Settings:
    """What the shared options said; None: nothing."""

    address: str | None = None
    admin_address: str | None = None
    output: str | None = None
    context: str | None = None

    def chosen(self) -> contexts.Context:
        """The context that counts: the one that was named, else the current one unless the
        scheduler's address was told in another way.

        Raises:
            CliError: there is none of that name, or the file cannot be read.
        """
        if self.context:
            return contexts.named(contexts_path(), self.context)
        if self.address or os.environ.get("BATCHYARD_ADDRESS"):
            return contexts.Context()
        return contexts.current(contexts_path())

    def client_address(self) -> str:
        """Where clients call: --address, --context, BATCHYARD_ADDRESS, the current context, the
        default.
        """
        if self.address:
            return self.address
        named = self.chosen().address if self.context else os.environ.get("BATCHYARD_ADDRESS")
        return named or self.chosen().address or DEFAULT_ADDRESS

    def admin_client_address(self) -> str:
        """Where administration answers; next to a client address that was told, if not told."""
        if self.admin_address:
            return self.admin_address
        if not self.context and os.environ.get("BATCHYARD_ADMIN_ADDRESS"):
            return os.environ["BATCHYARD_ADMIN_ADDRESS"]
        if not self.address and (remembered := self.chosen().admin_address):
            return remembered
        return beside(self.client_address())

    def credentials(self, *, admin: bool = False) -> contexts.Context:
        """What a context says of tokens and TLS, where it says which scheduler is meant."""
        told = self.admin_address or os.environ.get("BATCHYARD_ADMIN_ADDRESS")
        if admin and told and not self.context:
            return contexts.Context()
        return self.chosen()

    def format(self) -> str:
        """`table`, `wide`, `json`, `yaml`, `name`, or `tsv` for an unasked-for pipe."""
        if self.output:
            return self.output
        return "table" if sys.stdout.isatty() else "tsv"


def beside(client_address: str) -> str:
    """The admin address of a scheduler whose ports are laid out as by default."""
    host, _, port = client_address.rpartition(":")
    if not host or not port.isdigit():
        return DEFAULT_ADMIN_ADDRESS
    return f"{host}:{int(port) + ADMIN_PORT_OFFSET}"


def contexts_path() -> Path:
    """~/.config/batchyard/contexts.yaml, or its place under XDG_CONFIG_HOME."""
    root = os.environ.get("XDG_CONFIG_HOME")
    return (Path(root) if root else Path.home() / ".config") / "batchyard" / "contexts.yaml"
