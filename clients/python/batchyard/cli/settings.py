"""Which scheduler, and which form of output: options over environment over context over default."""

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

    def client_address(self) -> str:
        """Where clients call: --address, BATCHYARD_ADDRESS, the current context, the default."""
        told = self.address or os.environ.get("BATCHYARD_ADDRESS")
        return told or contexts.current(contexts_path()).address or DEFAULT_ADDRESS

    def admin_client_address(self) -> str:
        """Where administration answers; next to a client address that was told, if not told."""
        told = self.admin_address or os.environ.get("BATCHYARD_ADMIN_ADDRESS")
        if told:
            return told
        client = self.address or os.environ.get("BATCHYARD_ADDRESS")
        if client:
            return beside(client)
        context = contexts.current(contexts_path())
        if context.admin_address:
            return context.admin_address
        return beside(context.address) if context.address else DEFAULT_ADMIN_ADDRESS

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
