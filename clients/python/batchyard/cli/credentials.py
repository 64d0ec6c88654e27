"""As whom, and how protected, does the command line call? From the environment, the context and
files: what is typed as an argument can be read by every process of the machine.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from batchyard.cli.failures import USAGE, CliError
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard.channel import Tls

TOKEN = "BATCHYARD_API_KEY"
TOKEN_FILE = "BATCHYARD_TOKEN_FILE"
AUTHORITY = "BATCHYARD_TLS_CA"
CERTIFICATE = "BATCHYARD_TLS_CERT"
KEY = "BATCHYARD_TLS_KEY"


def api_key(settings: Settings, *, admin: bool = False) -> str | None:
    """BATCHYARD_API_KEY, or the content of the file that BATCHYARD_TOKEN_FILE or the context
    names; a context that was asked for by name comes first.
    """
    remembered = settings.credentials(admin=admin).token_file
    if remembered and settings.context:
        return _token(Path(remembered), f"the context {settings.context}")
    if token := os.environ.get(TOKEN):
        return token
    if name := os.environ.get(TOKEN_FILE):
        return _token(Path(name), f"the environment variable {TOKEN_FILE}")
    return _token(Path(remembered), "the current context") if remembered else None


def _token(path: Path, source: str) -> str:
    content = _read(path, source)
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CliError(
            f"{path} holds a token and others can use it",
            next_step=f"chmod 600 {path}",
            exit_code=USAGE,
        )
    return content.decode("ascii", "replace").strip()


def tls(settings: Settings, *, admin: bool = False) -> Tls:
    """None: plain text, and no token with it to another machine; False: though a token goes with
    it. BATCHYARD_TLS_CA, or the context's: a file of authorities, "system" for the machine's own,
    or "off".
    """
    context = settings.credentials(admin=admin)
    authority, certificate, key = (
        (given or os.environ.get(name)) if settings.context else (os.environ.get(name) or given)
        for name, given in (
            (AUTHORITY, context.tls_ca), (CERTIFICATE, context.tls_cert), (KEY, context.tls_key)
        )
    )  # fmt: skip
    if bool(certificate) != bool(key):
        raise CliError(f"{CERTIFICATE} and {KEY} belong together: set both", exit_code=USAGE)
    if authority == "off" and not certificate:
        return False
    if not authority and not certificate:
        return None
    import grpc

    named = f"{AUTHORITY}, {CERTIFICATE}, {KEY} or the context"
    roots = None if authority in (None, "", "system") else _read(Path(authority), named)
    return grpc.ssl_channel_credentials(
        roots,
        _read(Path(key), named) if key else None,
        _read(Path(certificate), named) if certificate else None,
    )


def _read(path: Path, source: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise CliError(
            f"{path} cannot be read: {fault.strerror}",
            why=f"named by {source}",
            exit_code=USAGE,
        ) from None
