"""Is this scheduler's core recorded, and into which file?"""

from __future__ import annotations

import logging

from scheduler_service.config import SchedulerConfig
from scheduler_service.core import Scheduler
from scheduler_service.recording.file import RecordingFile
from scheduler_service.recording.scheduler import RecordingScheduler

log = logging.getLogger(__name__)


class RecordingRefused(Exception):
    """The configured file cannot be written."""


def start(config: SchedulerConfig) -> RecordingFile | None:
    """The open file; None: nothing is recorded.

    Raises:
        RecordingRefused: it cannot be written.
    """
    path = config.recording.file
    if path is None:
        return None
    try:
        file = RecordingFile(path, max_bytes=config.recording.max_size, on_end=_ended)
    except OSError as fault:
        raise RecordingRefused(
            f"recording.file: {path} cannot be written: {fault.strerror or fault}"
        ) from fault
    log.info("recording to %s", path, extra={"event": "recording_started"})
    return file


def core_of(
    config: SchedulerConfig, term: int, file: RecordingFile | None, *, nodes_before: frozenset[str]
) -> Scheduler:
    """The core that is to decide: a plain one where nothing is recorded."""
    settings = config.core_settings(term=term, nodes_before=nodes_before)
    policies = config.policy_set()
    if file is None:
        return Scheduler(settings, policies)
    return RecordingScheduler(settings, policies, file)


def _ended(why: str) -> None:
    log.warning("recording has ended: %s", why, extra={"event": "recording_ended"})
