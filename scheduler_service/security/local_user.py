"""Who runs this command? The name that is written down beside what it changes."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from typing import Final

_ODD: Final = re.compile(r"[^A-Za-z0-9._:@-]")
_NAME_MAX: Final = 64


def local_user(environ: Mapping[str, str] = os.environ) -> str:
    """`local/NAME`, of the account that the process runs as; after sudo `local/NAME as ACCOUNT`.

    It is what the system says of the process, not a proof: who may write the grants' file may write
    any name into it.
    """
    uid = os.getuid()
    try:
        account = pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's uid, say
        account = f"uid-{uid}"
    before = environ.get("SUDO_USER", "")
    who = f"{_clean(before)} as {_clean(account)}" if before else _clean(account)
    return f"local/{who}"


def _clean(name: str) -> str:
    return _ODD.sub("_", name[:_NAME_MAX])
