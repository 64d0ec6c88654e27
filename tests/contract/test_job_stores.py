"""What every store of jobs owes: durable answers, one result an item, bounded steps, clear errors.

The file-level faults at the end are SQLite's own; a server database brings others.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from scheduler_service.jobs import changes
from scheduler_service.jobs.check import check
from scheduler_service.jobs.inputs import digest
from scheduler_service.jobs.kept import (
    ItemEnd,
    ItemKey,
    ItemResult,
    JobState,
    NewItem,
    NewJob,
    StoredJob,
    Used,
)
from scheduler_service.jobs.schema import VERSION
from scheduler_service.jobs.sqlite import FILE, FOLDER, SqliteStore
from scheduler_service.jobs.store import (
    CustomIdTaken,
    InputGap,
    JobIdTaken,
    JobQuery,
    NotReceiving,
    Store,
    StoreDamaged,
    StoreFailed,
)

SECOND = 1_000_000_000
MANY = 1 << 30


def new_job(
    job_id: str,
    items: int | Sequence[NewItem] = 3,
    *,
    receiving: bool = False,
    at: int = 100,
    window: int = 0,
    ttl: int = 50,
    tenant: str = "t",
    size: int = 10,
    body_hash: bytes = b"h",
    labels: dict[str, str] | None = None,
) -> NewJob:
    given = (
        [NewItem("", "m", 5, os.urandom(size)) for _ in range(items)]
        if isinstance(items, int)
        else list(items)
    )
    return NewJob(
        tenant=tenant, job_id=job_id, body_hash=body_hash, items=given, receiving=receiving,
        created_ns=at * SECOND, window_ns=window * SECOND, ttl_ns=ttl * SECOND, labels=labels or {},
    )  # fmt: skip


def end(job: StoredJob, index: int, how: ItemEnd = ItemEnd.SUCCEEDED) -> ItemResult:
    return ItemResult(ItemKey(job.key, index), how, b"result", 1, 90 * SECOND, Used(3, 4))


def open_store(folder: Path, max_bytes: int = MANY) -> SqliteStore:
    return SqliteStore(folder / FOLDER / FILE, max_bytes=max_bytes)


@pytest.fixture(params=[open_store])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = request.param(tmp_path)
    yield opened
    await opened.close()


async def created(store: Store, job: NewJob) -> StoredJob:
    return (await store.create(job))[0]


async def again(store: Store, job: StoredJob) -> StoredJob:
    return (await store.by_keys([job.key]))[0]


# Jobs.


async def test_job_is_there_as_it_was_given(store: Store) -> None:
    job, new = await store.create(new_job("a", window=9, labels={"k": "v"}))
    assert new
    assert job == await store.get("t", "a")
    assert (job.state, job.total, job.left) == (JobState.PENDING, 3, 3)
    assert job.due_ns == 109 * SECOND
    assert job.labels == {"k": "v"}
    assert await store.get("other", "a") is None


async def test_same_id_is_the_same_job_and_another_body_conflicts(store: Store) -> None:
    first, _ = await store.create(new_job("a"))
    second, new = await store.create(new_job("a"))
    assert (second, new) == (first, False)
    with pytest.raises(JobIdTaken):
        await store.create(new_job("a", body_hash=b"other"))
    assert (await store.create(new_job("a", tenant="u", body_hash=b"other")))[1]


async def test_custom_id_is_unique_in_a_job(store: Store) -> None:
    items = [NewItem(name, "m", 5, b"") for name in ("x", "", "", "y", "x")]
    with pytest.raises(CustomIdTaken, match="'x'"):
        await store.create(new_job("a", items))
    assert await store.get("t", "a") is None
    job = await created(store, new_job("b", items[:4], receiving=True))
    with pytest.raises(CustomIdTaken, match="'y'"):
        await store.append(job, 4, [items[3]], last=True, now_ns=0)


async def test_appended_items_run_only_when_the_input_is_complete(store: Store) -> None:
    job = await created(store, new_job("a", 2, receiving=True))
    more = [NewItem("", "m", 5, b"") for _ in range(3)]
    assert job.state is JobState.RECEIVING
    with pytest.raises(InputGap) as gap:
        await store.append(job, 3, more, last=False, now_ns=0)
    assert gap.value.next_index == 2
    assert (await store.append(job, 2, more, last=False, now_ns=0)).total == 5
    assert (await store.append(job, 2, more, last=False, now_ns=0)).total == 5, "it was a repeat"
    assert await store.waiting("m", 10) == []
    job = await store.append(job, 5, [], last=True, now_ns=0)
    assert job.state is JobState.PENDING
    assert len(await store.waiting("m", 10)) == 5
    assert (await store.append(job, 4, more[:1], last=True, now_ns=0)).total == 5
    with pytest.raises(NotReceiving):
        await store.append(job, 5, more, last=True, now_ns=0)


async def test_input_that_comes_again_must_be_the_same(store: Store) -> None:
    """However it is cut, and also when items have their results: else another file would pass."""
    items = [NewItem("", "m", 5, b"", digest(b"%d" % n)) for n in range(9)]
    wrong = [*items[:6], NewItem("", "m", 5, b"", digest(b"other")), *items[7:]]
    job = await created(store, new_job("a", items[:3], receiving=True))
    job = await store.append(job, 3, items[3:7], last=False, now_ns=0)
    with pytest.raises(JobIdTaken):
        await store.append(job, 5, wrong[5:], last=True, now_ns=0)
    assert (await store.append(job, 2, items[2:5], last=False, now_ns=0)).total == 7
    job = await store.append(job, 5, items[5:], last=True, now_ns=0)
    await store.finish([end(job, index) for index in range(9)], 0)
    assert (await store.append(job, 1, items[1:], last=True, now_ns=0)).total == 9
    for given in (wrong, items[:8], [*items[1:], items[0]]):
        with pytest.raises(JobIdTaken):
            await store.append(job, 0, given, last=True, now_ns=0)
    with pytest.raises(NotReceiving):
        await store.append(job, 7, [*items[7:], items[0]], last=True, now_ns=0)


async def test_items_wait_by_priority_then_age(store: Store) -> None:
    low = await created(store, new_job("low", [NewItem("", "m", 2, b"")] * 2))
    other = await created(store, new_job("other", [NewItem("", "n", 9, b"")]))
    high = await created(store, new_job("high", [NewItem("", "m", 9, b"")] * 2))
    wanted = [ItemKey(high.key, 0), ItemKey(high.key, 1), ItemKey(low.key, 0), ItemKey(low.key, 1)]
    assert await store.waiting("m", 10) == wanted
    assert await store.waiting("m", 3) == wanted[:3]
    assert await store.waiting("m", 10, without=[high.key]) == wanted[2:]
    assert sorted(await store.models()) == ["m", "n"]
    assert await store.backlog() == {"m": 4, "n": 1}
    (item,) = await store.items([ItemKey(other.key, 0)])
    assert (item.request_id, item.model) == ("other/0", "n")
    assert store.item_now("t", "other", 0) == item
    assert store.item_now("t", "other", 1) is None


async def test_end_of_an_items_time_is_kept_as_it_was_first_said(store: Store) -> None:
    job = await created(store, new_job("a", 2))
    await store.note_ends({ItemKey(job.key, 0): 7})
    await store.note_ends({ItemKey(job.key, 0): 9, ItemKey(job.key, 5): 9})
    items = await store.items([ItemKey(job.key, 0), ItemKey(job.key, 1)])
    assert [item.end_ns for item in items] == [7, 0]


async def test_lists_are_newest_first_and_filtered(store: Store) -> None:
    for number in range(5):
        await store.create(
            new_job(f"j{number}", tenant="tu"[number % 2], labels={"n": str(number % 2)})
        )
    found = await store.find(JobQuery(tenants=["t"]), 2)
    assert [job.job_id for job in found] == ["j4", "j2"]
    rest = await store.find(JobQuery(tenants=["t"], below=found[-1].key), 2)
    assert [job.job_id for job in rest] == ["j0"]
    assert len(await store.find(JobQuery(labels={"n": "1"}), 9)) == 2
    assert await store.find(JobQuery(states=frozenset({JobState.FAILED})), 9) == []


# Results.


async def test_item_has_one_result_the_first(store: Store) -> None:
    job = await created(store, new_job("a", 2))
    await store.finish([end(job, 0)], 0)
    late = ItemResult(ItemKey(job.key, 0), ItemEnd.FAILED, b"late")
    assert await store.finish([late], 0) == []
    twice = ItemResult(ItemKey(job.key, 1), ItemEnd.FAILED, b"second")
    (after,) = await store.finish([end(job, 1), twice], 0)
    rows = await store.results(job.key, after=0, limit=9)
    assert [(row.index, row.end, row.result) for row in rows] == [
        (0, ItemEnd.SUCCEEDED, b"result"),
        (1, ItemEnd.SUCCEEDED, b"result"),
    ]
    assert (after.succeeded, after.failed, after.preempted) == (2, 0, 2)
    assert (after.used.input_tokens, after.started_ns) == (6, 90 * SECOND)
    assert await store.items([ItemKey(job.key, 0)]) == []


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        ([ItemEnd.SUCCEEDED] * 2, JobState.SUCCEEDED),
        ([ItemEnd.SUCCEEDED, ItemEnd.EXPIRED], JobState.PARTIALLY_SUCCEEDED),
        ([ItemEnd.FAILED, ItemEnd.CANCELLED], JobState.FAILED),
    ],
)
async def test_job_ends_with_its_last_item(
    store: Store, ends: list[ItemEnd], state: JobState
) -> None:
    job = await created(store, new_job("a", 2))
    (half,) = await store.finish([end(job, 0, ends[0])], 110 * SECOND)
    assert not half.finished
    (done,) = await store.finish([end(job, 1, ends[1])], 120 * SECOND)
    assert done.state is state
    assert (done.ended_ns, done.delete_ns) == (120 * SECOND, 170 * SECOND)


async def test_results_are_paged_in_the_order_of_their_storing(store: Store) -> None:
    job = await created(store, new_job("a", 4))
    for index in (2, 0, 3, 1):
        how = ItemEnd.FAILED if index == 3 else ItemEnd.SUCCEEDED
        await store.finish([end(job, index, how)], 0)
    first = await store.results(job.key, after=0, limit=3)
    rest = await store.results(job.key, after=first[-1].number, limit=3)
    assert [row.index for row in first + rest] == [2, 0, 3, 1]
    wrong = await store.results(job.key, after=0, limit=9, not_succeeded=True)
    assert [row.index for row in wrong] == [3]


# Ends of jobs.


async def swept(store: Store, at_s: int) -> int:
    """Steps until there is nothing more to do."""
    steps = 1
    while (await store.sweep(at_s * SECOND)).more:
        steps += 1
    return steps


async def test_cancelled_job_ends_in_bounded_steps_and_keeps_its_results(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "SWEEP_ROWS", 4)
    job = await created(store, new_job("a", 10))
    await store.finish([end(job, 5)], 0)
    cancelled = await store.cancel(job.key, "why", 110 * SECOND)
    assert cancelled.state is JobState.CANCELLING
    assert await store.items([ItemKey(job.key, 0)]) == [], "nothing more of it starts"
    assert await swept(store, 111) == 3
    done = await again(store, job)
    assert (done.state, done.cancelled, done.succeeded) == (JobState.CANCELLED, 9, 1)
    rows = await store.results(job.key, after=0, limit=20)
    assert sorted(row.index for row in rows) == list(range(10))
    assert await store.cancel(job.key, "again", 0) == done


async def test_job_expires_with_its_window(store: Store) -> None:
    job = await created(store, new_job("a", 2, window=10))
    await store.finish([end(job, 0)], 0)
    await swept(store, 110)
    assert not (await again(store, job)).finished, "what runs gets its own end first"
    await swept(store, 112)
    done = await again(store, job)
    assert (done.state, done.expired, done.succeeded) == (JobState.EXPIRED, 1, 1)


async def test_job_is_deleted_after_its_time_to_live(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "SWEEP_ROWS", 3)
    job = await created(store, new_job("a", 7))
    kept = await created(store, new_job("b", 1))
    await store.finish([end(job, index) for index in range(7)], 120 * SECOND)
    await swept(store, 169)
    assert (await again(store, job)).finished
    await swept(store, 170)
    assert await store.get("t", "a") is None
    assert await store.results(job.key, after=0, limit=9) == []
    assert await again(store, kept)
    assert (await store.create(new_job("a", body_hash=b"other")))[1], "the id is free again"


async def test_job_whose_input_stops_coming_is_deleted(store: Store) -> None:
    job = await created(store, new_job("a", 2, receiving=True))
    await store.append(job, 2, [NewItem("", "m", 5, b"")], last=False, now_ns=130 * SECOND)
    await swept(store, 179)
    assert await store.by_keys([job.key])
    await swept(store, 180)
    assert await store.by_keys([job.key]) == []
    assert await store.models() == []


# The file.


async def test_what_waits_shares_a_commit(tmp_path: Path) -> None:
    """While one commit is on its way others gather; they are few transactions."""
    store = open_store(tmp_path)
    job = await created(store, new_job("a", 500))
    gate = threading.Event()
    held = asyncio.create_task(store.writer.write(lambda _: gate.wait(10)))
    others = [asyncio.create_task(store.finish([end(job, n)], 0)) for n in range(500)]
    await asyncio.sleep(0)
    before = store.writer.commits
    gate.set()
    await asyncio.gather(held, *others)
    assert store.writer.changes >= 500
    assert store.writer.commits - before <= 5
    assert (await again(store, job)).state is JobState.SUCCEEDED
    await store.close()


async def test_one_bad_change_does_not_spoil_those_that_share_its_commit(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    gate = threading.Event()
    held = asyncio.create_task(store.writer.write(lambda _: gate.wait(10)))
    good = [asyncio.create_task(store.create(new_job(f"g{n}"))) for n in range(5)]
    twice = [NewItem("x", "m", 5, b"")] * 2
    bad = asyncio.create_task(store.create(new_job("bad", twice)))
    await asyncio.sleep(0)
    gate.set()
    await held
    with pytest.raises(CustomIdTaken):
        await bad
    assert all(new for _, new in await asyncio.gather(*good))
    assert len(await store.find(JobQuery(), 99)) == 5
    await store.close()


async def test_files_are_private(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await store.create(new_job("a"))
    files = list((tmp_path / FOLDER).iterdir())
    assert {f.name for f in files} >= {FILE, f"{FILE}-wal"}
    assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}
    assert stat.S_IMODE((tmp_path / FOLDER).stat().st_mode) == 0o700
    await store.close()


async def test_torn_tail_loses_nothing_that_was_there_before(tmp_path: Path) -> None:
    """Behaviour 125: 1 to 64 bytes and more cut from the end of the log, in each case."""
    store = open_store(tmp_path / "live")
    await store.create(new_job("first"))
    log = tmp_path / "live" / FOLDER / f"{FILE}-wal"
    whole = log.stat().st_size
    await store.create(new_job("second"))
    for cut in (*range(1, 65), 4_095, 4_120):
        torn = tmp_path / f"torn{cut}"
        shutil.copytree(tmp_path / "live", torn)
        (torn / FOLDER / f"{FILE}-shm").unlink()
        os.truncate(torn / FOLDER / f"{FILE}-wal", log.stat().st_size - cut)
        assert (torn / FOLDER / f"{FILE}-wal").stat().st_size >= whole
        recovered = open_store(torn)
        assert await recovered.get("t", "first") is not None, f"{cut} bytes cut"
        assert (await recovered.create(new_job("third")))[1]
        await recovered.close()
        assert check(torn).faults == []
        shutil.rmtree(torn)
    await store.close()


async def test_full_store_refuses_and_recovers(tmp_path: Path) -> None:
    """Behaviour 128: no durable record, no acceptance; what is there stays; with room it works."""
    store = open_store(tmp_path, max_bytes=256 << 10)
    accepted: list[StoredJob] = []

    async def fill() -> None:
        while len(accepted) < 100:
            accepted.append(await created(store, new_job(f"j{len(accepted)}", 10, size=1_000)))

    with pytest.raises(StoreFailed, match="full"):
        await fill()
    refused = f"j{len(accepted)}"
    assert accepted
    assert await store.get("t", refused) is None
    assert [j.job_id for j in reversed(await store.find(JobQuery(), 99))] == [
        job.job_id for job in accepted
    ]
    await store.cancel(accepted[0].key, "", 110 * SECOND)
    await swept(store, 111)
    await swept(store, 200)
    assert (await store.create(new_job(refused, 5, size=1_000)))[1]
    await store.close()
    assert check(tmp_path).faults == []
    reopened = open_store(tmp_path)
    assert await reopened.get("t", refused) is not None
    await reopened.close()


async def test_locked_store_refuses_and_recovers(tmp_path: Path) -> None:
    """Behaviour 128: another process holds the write lock."""
    store = open_store(tmp_path)
    other = sqlite3.connect(tmp_path / FOLDER / FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreFailed, match="locked"):
        await store.create(new_job("a"))
    assert await store.find(JobQuery(), 9) == [], "reading goes on"
    other.execute("ROLLBACK")
    other.close()
    assert (await store.create(new_job("a")))[1]
    await store.close()


async def test_damaged_and_foreign_files_are_refused_by_name(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await store.create(new_job("a", 200, size=2_000))
    await store.close()
    path = tmp_path / FOLDER / FILE
    size = path.stat().st_size
    os.truncate(path, size - 10_000)
    with pytest.raises(StoreDamaged, match="jobs check"):
        open_store(tmp_path)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreDamaged, match="not a database"):
        open_store(tmp_path)
    path.unlink()
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE mine (x)")
    foreign.close()
    with pytest.raises(StoreDamaged, match="no store of jobs"):
        open_store(tmp_path)


async def test_store_of_a_time_before_ends_were_kept_goes_on(tmp_path: Path) -> None:
    first = open_store(tmp_path)
    job = await created(first, new_job("a", 1))
    await first.close()
    connection = sqlite3.connect(tmp_path / FOLDER / FILE)
    connection.execute("ALTER TABLE items DROP COLUMN end_ns")
    connection.close()
    later = open_store(tmp_path)
    await later.note_ends({ItemKey(job.key, 0): 7})
    assert [item.end_ns for item in await later.items([ItemKey(job.key, 0)])] == [7]
    await later.close()


async def test_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    await open_store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / FOLDER / FILE)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(StoreDamaged, match=f"version {VERSION + 1}"):
        open_store(tmp_path)


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (
            "INSERT INTO items SELECT NULL, job, place, '', 'm', 5, 1, x'', 0 FROM results",
            "still to",
        ),
        ("DELETE FROM results", "succeeded"),
        ("DELETE FROM jobs", "not there"),
        ("UPDATE jobs SET succeeded = 2", "succeeded"),
    ],
)
async def test_check_finds_what_does_not_fit(tmp_path: Path, harm: str, word: str) -> None:
    store = open_store(tmp_path)
    job = await created(store, new_job("a", 2))
    await store.finish([end(job, 0)], 0)
    await store.close()
    sound = check(tmp_path)
    assert (sound.faults, sound.jobs, sound.items_to_run, sound.results) == ([], 1, 1, 1)
    connection = sqlite3.connect(tmp_path / FOLDER / FILE)
    connection.execute(harm)
    connection.commit()
    connection.close()
    assert any(word in fault for fault in check(tmp_path).faults)


async def test_copy_in_a_folder_that_cannot_be_written_can_be_checked(tmp_path: Path) -> None:
    """SQLite needs a file beside one in WAL mode; where none can be made, as on a read-only file
    system, it said that the store cannot be opened."""
    store = open_store(tmp_path)
    await store.create(new_job("a", 3))
    await store.close()
    (tmp_path / FOLDER / f"{FILE}-shm").mkdir()
    found = check(tmp_path)
    assert (found.jobs, found.items_to_run, found.faults) == (1, 3, [])
