"""How are the parts of the jobs made and joined? For the composition root."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from scheduler_service.clock import Clock
from scheduler_service.config_jobs import JobsSection
from scheduler_service.driver import Driver
from scheduler_service.jobs.feeder import Feeder, FeedSettings
from scheduler_service.jobs.keeper import JobKeeper, JobLimits, WallClock
from scheduler_service.jobs.landing import Landing
from scheduler_service.jobs.sqlite import FILE, FOLDER, SqliteStore
from scheduler_service.jobs.telling import Note, Teller
from scheduler_service.quarantine import Quarantine
from scheduler_service.rpc.convert import Converter
from scheduler_service.rpc.entries import Entry
from scheduler_service.rpc.intake import Opening
from scheduler_service.security.principals import LOCAL
from scheduler_service.security.quotas import Quotas


def make_keeper(
    state_dir: Path,
    config: JobsSection,
    *,
    driver: Driver,
    clock: Clock,
    converter: Converter,
    next_rid: Callable[[], int],
    quotas: Quotas | None,
    quarantine: Quarantine,
    on_entry: Callable[[Entry, Opening], None] | None,
    note: Note,
) -> JobKeeper:
    """All that a scheduler needs for jobs; made on a running loop, not yet started.

    Raises:
        StoreDamaged: the store cannot be used.
    """
    store = SqliteStore(state_dir / FOLDER / FILE, max_bytes=config.max_bytes)
    wall = WallClock(clock)
    landing = Landing(store, clock, wall_ns=wall.ns)
    feeder = Feeder(
        store=store,
        landing=landing,
        driver=driver,
        converter=converter,
        clock=clock,
        next_rid=next_rid,
        due_instant=wall.instant,
        wall_ns=wall.at,
        settings=FeedSettings(
            window=config.window,
            max_window=config.max_window,
            unknown_model_grace=config.unknown_model_grace,
        ),
        quotas=quotas,
        quarantine=quarantine,
        on_entry=None if on_entry is None else partial(_traced, on_entry),
    )
    keeper = JobKeeper(
        store=store,
        feeder=feeder,
        landing=landing,
        clock=clock,
        wall=wall,
        teller=Teller(note, clock.now),
        limits=JobLimits(max_items=config.max_items, ttl=config.ttl, max_ttl=config.max_ttl),
    )
    landing.on_stored = keeper.landed
    return keeper


def _traced(on_entry: Callable[[Entry, Opening], None], entry: Entry, link: str) -> None:
    """An item is traced by itself: a job of thousands would make no readable trace."""
    on_entry(entry, Opening(entry.request_bytes, LOCAL, ("", ""), link=link))
