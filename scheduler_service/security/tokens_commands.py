"""What do `batchyard tokens create|join|list|revoke` do? A token is shown once and never again."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from scheduler_service.clock import Clock
from scheduler_service.security import command_line, grants
from scheduler_service.security.grants import Grant, Revocation
from scheduler_service.security.local_user import local_user
from service_kit.secret_files import write_secret


def create(options: argparse.Namespace) -> int:
    """A token of a client or operator, or the grant of a certificate's name."""
    kind: grants.Kind = "certificate" if options.certificate else "client"
    return _create(
        options,
        Grant(
            id=grants.new_id(),
            kind=kind,
            principal=options.principal,
            rights=options.rights or ["use"],
            tenants=options.tenants,
            models=options.models,
            max_priority=options.max_priority,
        ),
    )


def join(options: argparse.Namespace) -> int:
    """A token that lets agents in."""
    return _create(
        options, Grant(id=grants.new_id(), kind="join", principal="agents", uses=options.uses)
    )


def _create(options: argparse.Namespace, grant: Grant) -> int:
    now = now_s()
    grant.created, grant.label = now, options.label
    grant.created_by, grant.created_reason = local_user(), options.reason
    if options.expires_in is not None:
        grant.expires = now + int(options.expires_in)
    token = ""
    if grant.kind != "certificate":
        token, grant.digest = grants.new_token(grant.id)
    with grants.changing(command_line.grants_path(options)) as written:
        written.add(grant)
        if token and options.out is not None:
            write_secret(options.out, f"{token}\n".encode())
    until = f", until {_when(grant.expires)}" if grant.expires else ""
    sys.stderr.write(f"{grant.id}: {grant.summary()}{until}\n")
    if token and options.out is None:
        sys.stderr.write("this is the token; it is not shown again:\n")
        print(token)
    return 0


def show(options: argparse.Namespace) -> int:
    """All grants, newest last, with nothing secret in them."""
    path = command_line.grants_path(options)
    entries = grants.read(path, missing=True).entries.values()
    now = now_s()
    if options.output == "json":
        shown = [{**dataclasses.asdict(grant), "state": grant.state(now)} for grant in entries]
        for one in shown:
            del one["digest"]
        print(json.dumps(shown, indent=1))
        return 0
    table = [("ID", "STATE", "WHAT", "EXPIRES", "LABEL", "BY", "REASON")]
    table += [
        (
            grant.id,
            grant.state(now),
            grant.summary(),
            _when(grant.expires),
            grant.label,
            *_last_act(grant),
        )
        for grant in entries
    ]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        print(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        )
    return 0


def revoke(options: argparse.Namespace) -> int:
    """End it. A running scheduler notices within a second and ends what is open with it."""
    grants.check_act("", options.reason)
    with grants.changing(command_line.grants_path(options)) as written:
        grant = written.find(options.id)
        if not grant.revoked:  # who did it first did it
            grant.revoked, grant.revoked_by = now_s(), local_user()
            grant.revoked_reason = options.reason
    sys.stderr.write(f"{grant.id}: revoked ({grant.summary()})\n")
    return 0


def revoke_certificate(path: Path, fingerprint: str, reason: str = "") -> None:
    """Refuse a certificate from now on, by its fingerprint."""
    grants.check_act("", reason)
    revocation = Revocation(revoked=now_s(), revoked_by=local_user(), revoked_reason=reason)
    with grants.changing(path) as written:
        written.revoked_certificates.setdefault(fingerprint, revocation)


def now_s() -> int:
    """Seconds since 1970."""
    clock = Clock()
    return clock.wall_ns(clock.now()) // 1_000_000_000


def _last_act(grant: Grant) -> tuple[str, str]:
    """Who granted it and why; of a revoked one, who revoked it."""
    if grant.revoked:
        return grant.revoked_by, grant.revoked_reason
    return grant.created_by, grant.created_reason


def _when(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if seconds else "-"
