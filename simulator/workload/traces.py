"""How are the published traces read? Each format into `Arrival`s, in order of time, from 0 on.

Formats, told by the first line: Azure (CSV: TIMESTAMP, ContextTokens, GeneratedTokens; the
multimodal one has NumImages too), Mooncake (JSON lines with hash_ids of 512 tokens), Qwen-Bailian
(JSON lines with chat_id and hash_ids of 16 tokens), BurstGPT (CSV: Timestamp, Model, Request
tokens, Response tokens ...). ServeGen's client windows are rates, not requests: `servegen.py`.

Files may be gzipped. `data/README.md` says which come with the package, and whose they are.
"""

from __future__ import annotations

import csv
import gzip
import heapq
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

from scheduler_service.core.types import MILLISECOND, SECOND, Instant
from simulator.workload.arrival import Arrival
from simulator.workload.errors import TraceError

DATA: Final = Path(__file__).parents[1] / "data"
BUNDLED: Final = {
    "azure-conv": "azure_llm_2023_conv.csv.gz",
    "azure-code": "azure_llm_2023_code.csv.gz",
    "mooncake": "mooncake_conversation.jsonl.gz",
}
MOONCAKE_BLOCK: Final = 512
MOONCAKE_GRID: Final = 3 * SECOND  # its timestamps are rounded to this
QWEN_BLOCK: Final = 16
MOST_TOKENS: Final = 1_000_000_000  # of a prompt or an output; more is a damaged file
REORDERED: Final = 10_000  # rows that a trace is read ahead, to put late ones in their place

_Read = Callable[[Iterator[str], str, int], Iterator[Arrival]]


def load(source: str | Path, *, seed: int = 0) -> Iterator[Arrival]:
    """All requests of a bundled trace (by name) or of a file.

    Args:
        source: a name of `BUNDLED`, or a path.
        seed: for what the trace leaves open (where in its 3 s a request of Mooncake came).

    Raises:
        TraceError: no such trace, it cannot be read as one, or its rows are not in order of time
            (a row may come late by `REORDERED` rows).
    """
    path = find(source)
    lines = _lines(path)
    first = next(lines, "")
    read = _format_of(first, path)
    return _in_order(read(_chain(first, lines), path.name, seed), path.name)


def _in_order(arrivals: Iterator[Arrival], name: str) -> Iterator[Arrival]:
    ahead: list[tuple[Instant, int, Arrival]] = []
    latest = 0
    for number, arrival in enumerate(arrivals):
        if arrival.at < latest:
            raise TraceError(
                f"{name}: request {number + 1} comes {REORDERED:,} rows late: sort the file by time"
            )
        heapq.heappush(ahead, (arrival.at, number, arrival))
        if len(ahead) > REORDERED:
            latest, _, first = heapq.heappop(ahead)
            yield first
    while ahead:
        yield heapq.heappop(ahead)[2]


def find(source: str | Path) -> Path:
    """The file of that name or path."""
    path = DATA / BUNDLED[str(source)] if str(source) in BUNDLED else Path(source)
    if not path.is_file():
        raise TraceError(
            f"there is no trace {str(source)!r}: name a file or one of {', '.join(BUNDLED)}"
        )
    return path


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    text: Any = gzip.open if zipped else open
    with text(path, "rt", encoding="utf-8-sig", newline="") as file:
        try:
            yield from file
        except (UnicodeDecodeError, OSError, EOFError) as fault:
            raise TraceError(f"{path.name}: it is not a text file, gzipped or plain") from fault


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _format_of(first: str, path: Path) -> _Read:
    if first.startswith("{"):
        return _read_qwen if '"chat_id"' in first else _read_mooncake
    columns = {column.strip() for column in first.split(",")}
    if {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= columns:
        return _read_azure
    if {"Timestamp", "Request tokens", "Response tokens"} <= columns:
        return _read_burstgpt
    raise TraceError(
        f"{path.name}: its first line is of no known format (Azure, Mooncake, Qwen-Bailian, "
        f"BurstGPT): {first.strip()[:80]!r}"
    )


class _Rows:
    """Rows with their line numbers; what is wrong with one is said with file and line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.line = 0

    def fault(self, why: object) -> TraceError:
        return TraceError(f"{self.name}, line {self.line}: {why}")

    def csv(self, lines: Iterator[str]) -> Iterator[dict[str, str]]:
        reader = csv.DictReader(lines)
        try:
            for row in reader:
                self.line = reader.line_num
                if None in row.values():
                    raise self.fault("it has fewer columns than the first line names")
                yield row
        except csv.Error as fault:
            raise TraceError(f"{self.name}, line {reader.line_num + 1}: {fault}") from fault

    def json(self, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
        for line in lines:
            self.line += 1
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as fault:
                    raise self.fault(f"it is not JSON: {fault}") from fault


def _tokens(value: Any, least: int = 0) -> int:
    """A number of tokens; less than `least` counts as that, below 0 as a fault."""
    count = int(value)
    if not 0 <= count <= MOST_TOKENS:
        raise ValueError(f"{count} is no number of tokens")
    return max(least, count)


def _read_azure(lines: Iterator[str], name: str, _seed: int) -> Iterator[Arrival]:
    rows, start = _Rows(name), None
    for row in rows.csv(lines):
        try:
            at = instant(row["TIMESTAMP"])
            prompt, output = _tokens(row["ContextTokens"]), _tokens(row["GeneratedTokens"], 1)
        except (KeyError, TypeError, ValueError, OverflowError) as fault:
            raise rows.fault(fault) from fault
        start = at if start is None else start
        yield Arrival(max(0, at - start), prompt, output)


def instant(timestamp: str) -> Instant:
    """Nanoseconds of a timestamp of whatever number of digits, UTC where it names no zone."""
    head, _, tail = timestamp.strip().partition(".")
    digits = tail
    zone = ""
    for mark in ("+", "-", "Z"):
        if mark in tail:
            digits, _, rest = tail.partition(mark)
            zone = mark + rest
            break
    moment = datetime.fromisoformat(head + zone)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND + int((digits + "000000000")[:9])


def _read_mooncake(lines: Iterator[str], name: str, seed: int) -> Iterator[Arrival]:
    """Spread over its grid: as published, everything of 3 s comes at once."""
    random = Random(f"{seed}/mooncake")
    rows = _Rows(name)
    cell: list[Arrival] = []
    for row in rows.json(lines):
        try:
            at = int(row["timestamp"]) * MILLISECOND
            arrival = Arrival(
                at,
                _tokens(row["input_length"]),
                _tokens(row["output_length"], 1),
                blocks=tuple(row["hash_ids"]),
                block_tokens=MOONCAKE_BLOCK,
            )
        except (KeyError, TypeError, ValueError, OverflowError) as fault:
            raise rows.fault(f"{type(fault).__name__}: {fault}") from fault
        if cell and at // MOONCAKE_GRID != cell[0].at // MOONCAKE_GRID:
            yield from _spread(cell, random)
            cell = []
        cell.append(arrival)
    yield from _spread(cell, random)


def _spread(cell: list[Arrival], random: Random) -> list[Arrival]:
    """In the order given, at random instants of the cell."""
    if not cell:
        return cell
    start = cell[0].at // MOONCAKE_GRID * MOONCAKE_GRID
    offsets = sorted(random.randrange(MOONCAKE_GRID) for _ in cell)
    for arrival, offset in zip(cell, offsets, strict=True):
        arrival.at = start + offset
    return cell


def _read_qwen(lines: Iterator[str], name: str, _seed: int) -> Iterator[Arrival]:
    rows = _Rows(name)
    roots: dict[Any, Any] = {}
    for row in rows.json(lines):
        try:
            chat, parent = row["chat_id"], row.get("parent_chat_id", -1)
            root = roots[chat] = roots.get(parent, chat)
            yield Arrival(
                round(float(row["timestamp"]) * SECOND),
                _tokens(row["input_length"]),
                _tokens(row["output_length"], 1),
                session=f"chat{root}",
                blocks=tuple(row.get("hash_ids", ())),
                block_tokens=QWEN_BLOCK,
            )
        except (KeyError, TypeError, ValueError, OverflowError) as fault:
            raise rows.fault(f"{type(fault).__name__}: {fault}") from fault


def _read_burstgpt(lines: Iterator[str], name: str, _seed: int) -> Iterator[Arrival]:
    """Rows without a response are failures of the service; they are left out."""
    rows, start = _Rows(name), None
    for row in rows.csv(lines):
        try:
            at = round(float(row["Timestamp"]) * SECOND)
            prompt, output = _tokens(row["Request tokens"]), _tokens(row["Response tokens"])
        except (KeyError, TypeError, ValueError, OverflowError) as fault:
            raise rows.fault(fault) from fault
        start = at if start is None else start
        if output > 0:
            yield Arrival(max(0, at - start), prompt, output, session=row.get("Session ID") or "")
