"""What stands between this host and a working scheduler? Looks at each thing once.

`batchyard scheduler --doctor` with the flags or the file of the scheduler, whether or not one runs:
nothing is changed, nothing is kept. `batchyard doctor` looks at a running one from outside.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import errno
import fcntl
import os
import resource
import shutil
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from scheduler_service import config_advice
from scheduler_service.clock import Clock
from scheduler_service.config import SchedulerConfig
from scheduler_service.identity import LOCK
from scheduler_service.jobs.check import check
from scheduler_service.jobs.sqlite import FILE, FOLDER
from scheduler_service.jobs.store import StoreDamaged
from scheduler_service.security import grants
from service_kit import otlp_probe
from service_kit.addresses import joined
from service_kit.certificates import CertificateError, CertificateFiles
from service_kit.doctor import Finding, say

ANSWER_S: Final = 2.0
SOON: Final = dt.timedelta(days=14)  # before the end of a certificate
SYNCS: Final = 16
SLOW_SYNC_MS: Final = 20.0
LITTLE_SPACE: Final = 1 << 30
FEW_FILES: Final = 4_096
_TIME_ERROR: Final = 5  # of adjtimex: nothing keeps the clock right
_LOST: Final = ("failed", "dropped")


def examine(config: SchedulerConfig, environ: Mapping[str, str]) -> int:
    """Look at everything and print it; 0: nothing fails, 1: something does."""
    failed = False
    for finding in findings(config, environ):
        failed |= say(finding)
    return int(failed)


def findings(config: SchedulerConfig, environ: Mapping[str, str]) -> Iterator[Finding]:
    """All that is looked at, the cheap first."""
    yield from _contradictions(config)
    running = _running(config)
    yield from listen_findings(config, running=running is not None)
    yield from _security(config)
    yield from store_findings(config.state_dir)
    yield _clock()
    yield _open_files()
    yield otlp_probe.probe(environ)
    if running is not None:
        yield from _losses(running)


def _contradictions(config: SchedulerConfig) -> Iterator[Finding]:
    found = [f"{each.paths[0]} {each.text}" for each in config_advice.find(config)]
    if not found:
        yield Finding(True, "settings: valid, and none works against another")
    for text in found:
        yield Finding(None, f"settings: {text}")


def _running(config: SchedulerConfig) -> str | None:
    """The metrics page of the scheduler that answers at the HTTP port; None: none does. Empty:
    one does, and shows its figures to others only.
    """
    listen = config.listen
    if not listen.http_port or config.tls.certificate is not None:
        return None
    host = listen.host if listen.host not in ("0.0.0.0", "::") else "127.0.0.1"
    base = f"http://{joined(host, listen.http_port)}"
    try:
        with urllib.request.urlopen(f"{base}/healthz", timeout=ANSWER_S):
            pass
        with urllib.request.urlopen(f"{base}/metrics", timeout=ANSWER_S) as page:
            text: str = page.read().decode()
            return text
    except urllib.error.HTTPError as refused:
        return "" if refused.code in (401, 403) else None
    except (OSError, ValueError):
        return None


def listen_findings(config: SchedulerConfig, *, running: bool) -> Iterator[Finding]:
    """Whether each address can be had. `running`: a scheduler answers at its HTTP port."""
    listen = config.listen
    if running:
        where = joined(listen.host, listen.http_port)
        yield Finding(True, f"listen: a scheduler answers at {where} already")
    for name in ("client_port", "node_port", "admin_port", "http_port"):
        port = getattr(listen, name)
        if not port:
            yield Finding(None, f"listen.{name}: 0, so any free one; agents must be told which")
            continue
        what = f"listen.{name}: {joined(listen.host, port)}"
        why = _why_not_bound(listen.host, port)
        if why is None:
            yield Finding(True, f"{what} can be had")
        elif running and why.errno == errno.EADDRINUSE:
            yield Finding(True, f"{what} is in use, as it should be")
        else:
            yield Finding(False, f"{what} cannot be had: {why.strerror or why}", _remedy(why, name))


def _why_not_bound(host: str, port: int) -> OSError | None:
    try:
        (family, kind, proto, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with socket.socket(family, kind, proto) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
            tried.listen(1)
    except OSError as fault:
        return fault
    return None


def _remedy(why: OSError, name: str) -> str:
    if why.errno == errno.EADDRINUSE:
        return f"stop what uses it (`ss -ltnp`), or set listen.{name}"
    if why.errno in (errno.EACCES, errno.EPERM):
        return "ports below 1024 are for root only: take a higher one"
    return "listen.host must be an address of this machine"


def _security(config: SchedulerConfig) -> Iterator[Finding]:
    tls = config.tls
    if tls.certificate is not None:
        try:
            files = CertificateFiles(
                certificate=tls.certificate, key=tls.key, authority=tls.authority
            )
        except CertificateError as fault:
            yield Finding(False, f"tls: {fault}", "`batchyard certs` makes new ones")
        else:
            yield _expiry(files.identity.expires)
    if config.auth.file is not None:
        try:
            grants.read(config.auth.file)
        except grants.GrantsError as fault:
            yield Finding(False, f"auth: {fault}", "`batchyard tokens create` makes it")
        else:
            yield Finding(True, f"auth: {config.auth.file} can be read")


def _expiry(expires: dt.datetime | None) -> Finding:
    left = None if expires is None else expires - dt.datetime.fromtimestamp(_wall_s(), dt.UTC)
    if left is None or left > SOON:
        return Finding(True, f"tls: the certificate is good until {expires:%Y-%m-%d}")
    return Finding(
        False, f"tls: the certificate ends in {left.days} days", "`batchyard certs` makes a new one"
    )


def store_findings(state_dir: Path | None) -> Iterator[Finding]:
    """The folder of state: can it be written, how fast, is what is there whole?"""
    if state_dir is None:
        return
    what = f"state_dir: {state_dir}"
    folder = next(p for p in (state_dir, *state_dir.absolute().parents) if p.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        remedy = "let this user own it, or name another"
        yield Finding(False, f"{what} cannot be written by this user", remedy)
        return
    if not state_dir.exists():
        yield Finding(True, f"{what} will be made at the first start")
    elif _is_locked(state_dir):
        yield Finding(None, f"{what} is held by a running scheduler")
    free = shutil.disk_usage(folder).free
    space = f"{free >> 20} MiB free"
    if free < LITTLE_SPACE:
        yield Finding(False, f"{what}: only {space}", "make room: jobs are refused on a full disk")
    yield _sync_speed(folder, f"{what}: {space}")
    yield from _jobs_store(state_dir)


def _is_locked(state_dir: Path) -> bool:
    try:
        descriptor = os.open(state_dir / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _sync_speed(folder: Path, what: str) -> Finding:
    """Each acknowledged commit of jobs waits for the disk."""
    took: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1e3)
    median = sorted(took)[len(took) // 2]
    slow = median > SLOW_SYNC_MS
    remedy = "each commit of jobs waits for that: use a local disk" if slow else ""
    return Finding(None if slow else True, f"{what}, written through in {median:.1f} ms", remedy)


def _jobs_store(state_dir: Path) -> Iterator[Finding]:
    if not (state_dir / FOLDER / FILE).is_file():
        return
    try:
        found = check(state_dir)
    except StoreDamaged as fault:
        yield Finding(False, f"jobs: {fault}", "restore the folder from a copy")
        return
    for text in found.faults:
        yield Finding(False, f"jobs: {text}", "restore the folder from a copy, and report it")
    if not found.faults:
        yield Finding(True, f"jobs: {found.jobs} stored, {found.items_to_run} items to run; sound")


def _clock() -> Finding:
    """Whether the kernel says that something keeps the clock right."""
    remedy = "start chrony or systemd-timesyncd: times of traces and events mislead"
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return Finding(None, "clock: this system does not say whether it is kept right")
    if state == _TIME_ERROR:
        return Finding(None, "clock: nothing keeps it right, says the kernel", remedy)
    if state < 0:
        return Finding(None, "clock: the kernel does not say whether it is kept right")
    return Finding(True, "clock: kept right, says the kernel")


def _open_files() -> Finding:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < FEW_FILES:
        remedy = "raise it (LimitNOFILE=65536 of the unit): every connection takes one"
        return Finding(False, f"open files: at most {hard}", remedy)
    shown = "not limited" if hard == resource.RLIM_INFINITY else f"up to {hard}"
    return Finding(True, f"open files: {shown}")


def _losses(page: str) -> Iterator[Finding]:
    """What the running scheduler could not send."""
    if not page:
        yield Finding(None, "traces: the running scheduler shows its figures to others only")
        return
    lost = sent = 0
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "batchyard_telemetry_spans_total":
                outcome = sample.labels.get("outcome")
                lost += int(sample.value) if outcome in _LOST else 0
                sent += int(sample.value) if outcome == "exported" else 0
    if lost:
        remedy = "see whether the collector can be reached, and keeps up; or sample less"
        yield Finding(False, f"traces: {lost} spans lost and {sent} sent since its start", remedy)
    elif sent:
        yield Finding(True, f"traces: {sent} spans sent since its start, none lost")


def _wall_s() -> float:
    return Clock().wall_ns(Clock().now()) / 1e9
