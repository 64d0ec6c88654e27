"""As whom, and how protected, does the command line call? From the environment and files alone:
what is typed as an argument can be read by every process of the machine.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from batchyard.cli.failures import USAGE, CliError

if TYPE_CHECKING:
    from batchyard.channel import Tls

TOKEN = "BATCHYARD_API_KEY"
TOKEN_FILE = "BATCHYARD_TOKEN_FILE"
AUTHORITY = "BATCHYARD_TLS_CA"
CERTIFICATE = "BATCHYARD_TLS_CERT"
KEY = "BATCHYARD_TLS_KEY"


def api_key() -> str | None:
    """BATCHYARD_API_KEY, or the content of the file that BATCHYARD_TOKEN_FILE names."""
    token = os.environ.get(TOKEN)
    name = os.environ.get(TOKEN_FILE)
    if token or not name:
        return token
    path = Path(name)
    content = _read(path, TOKEN_FILE)
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CliError(
            f"{path} holds a token and others can use it",
            next_step=f"chmod 600 {path}",
            exit_code=USAGE,
        )
    return content.decode("ascii", "replace").strip()


def tls() -> Tls:
    """None: plain text; BATCHYARD_TLS_CA: a file of authorities, or "system" for the machine's."""
    authority = os.environ.get(AUTHORITY)
    certificate, key = os.environ.get(CERTIFICATE), os.environ.get(KEY)
    if bool(certificate) != bool(key):
        raise CliError(f"{CERTIFICATE} and {KEY} belong together: set both", exit_code=USAGE)
    if not authority and not certificate:
        return None
    import grpc

    roots = None if authority in (None, "", "system") else _read(Path(authority), AUTHORITY)
    return grpc.ssl_channel_credentials(
        roots,
        _read(Path(key), KEY) if key else None,
        _read(Path(certificate), CERTIFICATE) if certificate else None,
    )


def _read(path: Path, variable: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise CliError(
            f"{path} cannot be read: {fault.strerror}",
            why=f"the environment variable {variable} names it",
            exit_code=USAGE,
        ) from None
