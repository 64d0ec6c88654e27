"""Whose fault is what aiohttp cannot read? Its sender's: that is a line of the log, no traceback.

aiohttp logs it as an error of the server, with the whole stack, and anybody who takes the HTTP port
for another one can cause it: a gRPC client is enough.
"""

from __future__ import annotations

import logging


class _SendersFaults(logging.Filter):
    """Nothing is left out; what is the sender's fault is said as such."""

    def filter(self, record: logging.LogRecord) -> bool:
        from aiohttp.http_exceptions import HttpProcessingError

        fault = record.exc_info[1] if record.exc_info else None
        if isinstance(fault, HttpProcessingError):
            said = " ".join(fault.message.split())[:200]
            record.msg, record.args = f"{record.getMessage()}: it is no HTTP: {said}", ()
            record.exc_info = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


_FILTER = _SendersFaults()


def server_log() -> logging.Logger:
    """For an application's runner."""
    log = logging.getLogger("aiohttp.server")
    log.addFilter(_FILTER)  # once, however often it is asked for
    return log
