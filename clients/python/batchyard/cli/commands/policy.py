"""`batchyard policy`: which policies are in force, and others in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from batchyard.cli.asks import ask_admin
from batchyard.cli.columns import Column, text
from batchyard.cli.options import pass_settings, reason_option, server_options
from batchyard.cli.output import emit_document, emit_list, note
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard import AsyncAdmin
    from batchyard.cli.columns import Document
    from batchyard.v1 import Policy, UpdatePolicyResponse

UNTIL: Final = "in force until the scheduler restarts; to keep it, write it into scheduler.yaml"
_COLUMNS: Final = [
    Column("setting", "SETTING"),
    Column("now", "NOW", show=text),
    Column("then", "THEN", show=text),
    Column("decides", "WHAT IT DECIDES", fold=True),
]

policy_argument = click.argument("policy", metavar="FILE|SETTINGS")


@click.group(name="policy")
def policies() -> None:
    """Show the policies in force, compare, and apply others while the scheduler runs.

    A FILE is what `simulate --policy` takes: a scheduler.yaml, of which addresses and the like are
    left alone. What it does not say is the default, as at a start. `-`: standard input. SETTINGS
    are laid over what is in force: policies.order=fifo, several joined by semicolons.
    """


@policies.command()
@server_options
@pass_settings
def show(settings: Settings) -> None:
    """Print the policy in force, as a file that can be changed and applied."""
    found = ask_admin(settings, lambda admin: admin.policy())
    form = settings.format()
    if form == "name":
        print(found.etag)
    elif form == "json":
        emit_document(form, _document(found))
    else:
        print(f"# etag: {found.etag}")
        print(f"# {_since(found)}")
        print(found.yaml, end="")


@policies.command()
@policy_argument
@server_options
@pass_settings
def diff(settings: Settings, policy: str) -> None:
    """Show what would change, in plain words; the scheduler checks it."""
    answer = ask_admin(settings, lambda admin: _update(admin, policy, validate_only=True))
    _tell(settings, answer, applied=False)


@policies.command()
@policy_argument
@click.option("--dry-run", is_flag=True, help="Let the scheduler check it; change nothing.")
@click.option("--etag", default="", help="Only if this is still in force; see `show -o name`.")
@reason_option
@server_options
@pass_settings
def apply(settings: Settings, policy: str, dry_run: bool, etag: str, reason: str) -> None:
    """Put other policies in force, now: no restart, and no request is lost.

    A file that `show` printed names the policy that it was made of: where another is in force
    meanwhile, it is refused, as with --etag.
    """
    answer = ask_admin(
        settings,
        lambda admin: _update(admin, policy, etag=etag, reason=reason, validate_only=dry_run),
    )
    _tell(settings, answer, applied=not dry_run)
    if dry_run:
        note("dry run: nothing was changed")
    elif answer.policy.yaml != answer.previous_yaml:
        note(UNTIL)


async def _update(
    admin: AsyncAdmin, policy: str, *, etag: str = "", reason: str = "", validate_only: bool
) -> UpdatePolicyResponse:
    from batchyard.cli.policy_file import is_settings, lay_settings, read_file

    if is_settings(policy):
        in_force = await admin.policy()
        content, known = lay_settings(policy, in_force.yaml), in_force.etag
    else:
        content, known = read_file(policy)
    return await admin.update_policy(
        content, etag=etag or known, reason=reason, validate_only=validate_only
    )


def _tell(settings: Settings, answer: UpdatePolicyResponse, *, applied: bool) -> None:
    from batchyard.cli.policy_file import differences

    rows = differences(answer.previous_yaml, answer.policy.yaml)
    warnings = list(answer.warnings)
    form = settings.format()
    if form in ("json", "yaml"):
        document = {"applied": applied, "etag": answer.policy.etag}
        emit_document(form, {**document, "changes": rows, "warnings": warnings})
        return
    emit_list(
        settings, "changes", rows, _COLUMNS, id_key="setting", empty="nothing would be different"
    )
    for warning in warnings:
        note(f"note: {warning}")


def _document(policy: Policy) -> Document:
    from batchyard.cli.views.plain import plain

    document = plain(policy)
    return {key: document[key] for key in ("etag", "update_time", "updated_by", "yaml")}


def _since(policy: Policy) -> str:
    if not policy.updated_by:
        return "as the scheduler started"
    at = policy.update_time.ToDatetime().strftime("%Y-%m-%d %H:%M:%S")
    return f"applied by {policy.updated_by} at {at} UTC; lost when the scheduler restarts"
