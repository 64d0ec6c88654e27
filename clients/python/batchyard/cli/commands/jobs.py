"""`batchyard jobs`: create, list, show, results, watch, cancel, check."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchyard.cli.asks import ask, take
from batchyard.cli.failures import FAILURE, OK, PARTIAL, CliError
from batchyard.cli.installed import python_module, require_services
from batchyard.cli.nouns import NounGroup
from batchyard.cli.options import output_option, pass_settings, server_options
from batchyard.cli.output import emit_line, emit_list, emit_one, note
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard import AsyncClient
    from batchyard.cli.views.plain import Document
    from batchyard.v1 import InferenceRequest, Job

STATES = (
    "receiving", "pending", "running", "succeeded", "partially_succeeded", "failed", "cancelling",
    "cancelled", "expired",
)  # fmt: skip
_EXIT = {"succeeded": OK, "partially_succeeded": PARTIAL}
tenant_option = click.option("--tenant", default=None, help="Whose, where it is not yours.")
job_argument = click.argument("job_id")


@click.group(cls=NounGroup)
def jobs() -> None:
    """Store many requests, and fetch their results when they are done."""


@jobs.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--id", "job_id", default="", help="The same id and file again is the same job.")
@click.option("-m", "--model", default="", help="For lines that name none.")
@click.option("--priority", type=click.IntRange(1, 10), help="Among jobs; 10 = most urgent.")
@click.option("--task-type", default="", help="For lines that name none.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="For lines without parameters.")
@click.option("--window", default=None, help="What has not finished after this long expires.")
@click.option("--ttl", default=None, help="How long the job is kept after its end.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@click.option("--wait", is_flag=True, help="Wait for the end, as `jobs watch` does.")
@tenant_option
@server_options
@pass_settings
def create(
    settings: Settings,
    file: Path,
    job_id: str,
    model: str,
    priority: int | None,
    task_type: str,
    max_tokens: int | None,
    window: str | None,
    ttl: str | None,
    labels: tuple[str, ...],
    wait: bool,
    tenant: str | None,
) -> int:
    """Store a job from FILE, JSON lines (- is standard input); it runs when this returns.

    A line is {"custom_id": "a", "request": {"text": {"prompt": "hi"}}}, or one of OpenAI's batch
    files, {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}.
    """
    pairs = dict(_pair(label) for label in labels)
    defaults = _defaults(model, priority, task_type, max_tokens)

    async def store(client: AsyncClient) -> Job:
        source = sys.stdin.buffer if str(file) == "-" else file
        return await client.jobs.create_from_file(
            source,
            job_id=job_id,
            defaults=defaults,
            completion_window=window,
            ttl=ttl,
            labels=pairs,
            tenant=tenant,
        )

    try:
        job = ask(settings, store)
    except OSError as error:
        raise CliError(f"cannot read {file}", why=str(error)) from error
    if wait:
        note(f"stored as {job.job_id}")
        return _watch(settings, job.job_id, tenant, results=False)
    _show(settings, job)
    return OK


def _pair(label: str) -> tuple[str, str]:
    key, separator, value = label.partition("=")
    if not separator or not key:
        raise click.UsageError(f"--label {label!r}: write KEY=VALUE")
    return key, value


def _defaults(
    model: str, priority: int | None, task_type: str, max_tokens: int | None
) -> InferenceRequest:
    from batchyard.v1 import InferenceRequest

    defaults = InferenceRequest(model=model, priority=priority or 0, task_type=task_type)
    if max_tokens is not None:
        defaults.params.max_tokens = max_tokens
    return defaults


@jobs.command(name="list")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only in this.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only with this.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Most to list."
)
@tenant_option
@server_options
@pass_settings
def list_jobs(
    settings: Settings,
    states: tuple[str, ...],
    labels: tuple[str, ...],
    limit: int,
    tenant: str | None,
) -> None:
    """List jobs, newest first."""
    from batchyard.cli.views.jobs import LIST_COLUMNS, job_document, job_row
    from batchyard.v1 import JobState

    wanted: list[Any] = [JobState.Value(f"JOB_STATE_{state.upper()}") for state in states]
    pairs = dict(_pair(label) for label in labels)

    async def listed(client: AsyncClient) -> list[Job]:
        found = client.jobs.list(states=wanted, labels=pairs, tenant=tenant, page_size=limit)
        return await take(found, limit)

    row = job_document if settings.format() in ("json", "yaml") else job_row
    rows = [row(job) for job in ask(settings, listed)]
    emit_list(settings, "jobs", rows, LIST_COLUMNS, id_key="job_id", empty="no jobs")


@jobs.command()
@job_argument
@tenant_option
@server_options
@pass_settings
def show(settings: Settings, job_id: str, tenant: str | None) -> None:
    """Show one job."""
    _show(settings, ask(settings, lambda client: client.jobs.get(job_id, tenant=tenant)))


def _show(settings: Settings, job: Job) -> None:
    from batchyard.cli.views.jobs import job_document

    emit_one(settings, job_document(job), id_key="job_id")


@jobs.command()
@job_argument
@click.option("--failed", is_flag=True, help="Only results with an error.")
@click.option("--limit", type=click.IntRange(min=1), help="Most to print; absent: all.")
@tenant_option
@server_options
@pass_settings
def results(
    settings: Settings, job_id: str, failed: bool, limit: int | None, tenant: str | None
) -> None:
    """Print the results so far; with -o json one document a line, as they are read."""
    from batchyard.cli.views.jobs import RESULT_COLUMNS, result_document, result_row

    async def printed(client: AsyncClient) -> list[Document]:
        source = client.jobs.results(job_id, not_succeeded=failed, tenant=tenant, page_size=200)
        if settings.format() == "json":
            await _print_lines(source, limit)
            return []
        row = result_document if settings.format() == "yaml" else result_row
        return [row(result) for result in await take(source, limit)]

    rows = ask(settings, printed)
    if settings.format() != "json":
        emit_list(settings, "results", rows, RESULT_COLUMNS, id_key="index", empty="no results yet")


async def _print_lines(source: AsyncIterator[object], limit: int | None) -> None:
    from batchyard.cli.views.jobs import result_document

    printed = 0
    async for result in source:
        emit_line(result_document(result))  # type: ignore[arg-type]
        printed += 1
        if printed == limit:
            return


@jobs.command()
@job_argument
@click.option("--results", "with_results", is_flag=True, help="Also print each result.")
@tenant_option
@server_options
@pass_settings
def watch(settings: Settings, job_id: str, with_results: bool, tenant: str | None) -> int:
    """Follow a job to its end; exit code 0: all succeeded, 5: some did, 1: none, or cancelled."""
    return _watch(settings, job_id, tenant, results=with_results)


def _watch(settings: Settings, job_id: str, tenant: str | None, *, results: bool) -> int:
    async def follow(client: AsyncClient) -> Document:
        from batchyard.cli.views.jobs import job_document, progress_line, result_document

        document: Document = {}
        async for change in client.jobs.watch(job_id, results=results, tenant=tenant):
            for result in change.results:
                emit_line(result_document(result))
            document = job_document(change.job)
            if settings.format() in ("json", "yaml"):
                if not results:
                    emit_line(document)
            else:
                note(progress_line(document))
        return document

    return _EXIT.get(str(ask(settings, follow).get("state")), FAILURE)


@jobs.command()
@job_argument
@click.option("--reason", default="", help="Why; kept with the job.")
@tenant_option
@server_options
@pass_settings
def cancel(settings: Settings, job_id: str, reason: str, tenant: str | None) -> None:
    """Start nothing more of a job and stop what runs; finished results are kept."""
    _show(
        settings,
        ask(settings, lambda client: client.jobs.cancel(job_id, reason=reason, tenant=tenant)),
    )


@jobs.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@output_option
@pass_settings
def check(settings: Settings, folder: Path) -> int:
    """Check the store of FOLDER, a scheduler's state_dir; exit code 0: it is sound, 1: it is not.

    The store is only read; the scheduler may run meanwhile.
    """
    require_services("scheduler_service")
    form = ["--json"] if settings.output is not None else []
    done = subprocess.run(
        [*python_module("scheduler_service.jobs"), "check", str(folder), *form],
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return OK if done.returncode == 0 else FAILURE
