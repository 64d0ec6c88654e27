"""The command: options, signals, the order of start and stop, and the exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchyard.cli.demo import telling, traces
from batchyard.cli.demo.board import Board
from batchyard.cli.demo.calls import Caller
from batchyard.cli.demo.checks import Check, checklist
from batchyard.cli.demo.evidence import Evidence, gather
from batchyard.cli.demo.play import Play
from batchyard.cli.demo.stage import Stage
from batchyard.cli.demo.view import Progress, View
from batchyard.cli.dev import engines
from batchyard.cli.failures import FAILURE, INTERRUPTED, OK, CliError
from batchyard.cli.installed import has_distribution, require_services
from batchyard.cli.options import output_option, pass_settings
from batchyard.cli.output import emit_document
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard import AsyncAdmin

LOOK_S = 0.2  # between two reports
_OURS = ("BATCHYARD_SCHEDULER__", "BATCHYARD_AGENT__")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--engine",
    type=click.Choice(["simulated", "llamacpp"]),
    help="What answers. [default: llamacpp with the small model if installed, else simulated]",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".demo"),
    show_default=True,
    help="Where report, trace and answers are written.",
)
@click.option("--verbose", is_flag=True, help="Show the logs of every process; no live screen.")
@output_option
@pass_settings
def demo(settings: Settings, engine: str | None, folder: Path, verbose: bool) -> int:
    """Play a peak of requests on this machine, and prove each decision of the scheduler.

    Exit code: 0 if every promise held, 1 if one did not, 130 after Ctrl-C.
    """
    require_services("scheduler_service", "node_agent")
    _require_tracing()
    choice = engines.choose(engine)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(
            f"the folder {folder} cannot be used", why=str(error), next_step="--folder ELSEWHERE"
        ) from error
    for name in [name for name in os.environ if name.startswith(_OURS)]:
        del os.environ[name]  # they would change the processes of the demo
    run = _Demo(choice, folder, as_json=settings.output == "json", verbose=verbose)
    with tempfile.TemporaryDirectory(prefix="batchyard-demo-") as scratch:
        return asyncio.run(run.run(Path(scratch)))


def _require_tracing() -> None:
    if not has_distribution(traces.DISTRIBUTION):
        raise CliError(
            "the demo shows traces, and what sends them is not installed",
            why=f"missing: {traces.DISTRIBUTION}",
            next_step="pip install 'batchyard[otlp]'",
        )


class _Demo:
    """One run."""

    def __init__(
        self, choice: engines.EngineChoice, folder: Path, *, as_json: bool, verbose: bool
    ) -> None:
        self._choice = choice
        self._folder = folder
        self._as_json = as_json
        self._verbose = verbose
        self._board = Board()
        self._caller: Caller | None = None
        self._view = View(stderr=as_json, plain=verbose, progress=self._progress)
        self._hurry = asyncio.Event()
        self._interrupted = False
        self._stopping = False

    async def run(self, scratch: Path) -> int:
        """Play, tell, and say how it went."""
        playing = asyncio.create_task(self._play_all(scratch))
        self._on_signals(playing)
        try:
            evidence = await playing
        except asyncio.CancelledError:
            if not self._interrupted:
                raise
        if self._interrupted:
            return INTERRUPTED
        checks = checklist(evidence)
        self._tell(evidence, checks)
        return OK if all(check.held for check in checks) else FAILURE

    async def _play_all(self, scratch: Path) -> Evidence:
        """Play, stop every process, and only then look at the traces: they are whole then."""
        collector = traces.Collector()
        provider = traces.send_traces_to(collector.endpoint)
        stage = Stage(scratch, self._choice, self._board, self._on_line)
        try:
            with self._view.live():
                evidence = await self._play(stage)
        finally:
            self._stopping = True
            self._view.say("stopping all processes")
            stage.expect_ends()
            await stage.tree.stop(self._hurry)
            await asyncio.to_thread(traces.flush, provider)
            await asyncio.to_thread(collector.close)
        evidence.trace = collector.document()
        return evidence

    async def _play(self, stage: Stage) -> Evidence:
        from batchyard import AsyncAdmin, AsyncClient

        choice = self._choice
        self._view.act(f"Start: engine {choice.kind}, model {choice.model} ({choice.reason})")
        await stage.start_scheduler()
        address = stage.tree.address("client")
        async with (
            AsyncAdmin(stage.tree.address("admin")) as admin,
            # No retries here: what holds is the scheduler's doing.
            AsyncClient(address, retries=0) as client,
        ):
            following = asyncio.create_task(self._follow(admin))
            self._caller = caller = Caller(client, choice.model, self._board)
            try:
                await stage.start_agents()
                outcome = await Play(stage, self._board, caller, admin, self._view).run()
                return await gather(admin, caller.calls, outcome)
            finally:
                following.cancel()
                await caller.close()

    async def _follow(self, admin: AsyncAdmin) -> None:
        """The one stream of reports: the screen and all conditions live on it."""
        from batchyard import BatchyardError
        from batchyard.cli.views.report import report_document

        try:
            async for report in admin.watch_report(interval=LOOK_S, max_events=200):
                document = report_document(report)
                self._board.report(document)
                self._view.show(document)
        except BatchyardError as error:
            self._board.fail(f"the stream of reports ended: {error}")

    def _tell(self, evidence: Evidence, checks: list[Check]) -> None:
        from rich.text import Text

        from batchyard.cli.screens import report_screen
        from batchyard.cli.words import ENGLISH

        self._write(telling.REPORT, evidence.report)
        self._write(telling.TRACE, evidence.trace, indent=None)
        self._write(telling.ANSWERS, telling.answers_document(evidence))
        took_s = self._view.elapsed_s
        if self._as_json:
            emit_document("json", telling.summary(checks, self._folder, took_s))
            return
        parts = [telling.answers_part(evidence)] if self._choice.kind == "llamacpp" else []
        parts.append(telling.checks_part(checks))
        parts += [Text(f"  stuck: {problem}") for problem in evidence.outcome.problems]
        if evidence.report is not None:
            parts += [Text(), report_screen(evidence.report, ENGLISH)]
        parts.append(telling.files_part(self._folder, evidence))
        parts.append(Text(f"\n{telling.verdict(checks, took_s)}", style="bold"))
        for part in parts:
            self._view.console.print(part)

    def _write(self, name: str, document: Any, *, indent: int | None = 2) -> None:
        text = json.dumps(document, ensure_ascii=False, indent=indent)
        (self._folder / name).write_text(text + "\n", encoding="utf-8")

    def _progress(self) -> Progress:
        calls = self._caller.calls if self._caller is not None else []
        ended = sum(call.done for call in calls)
        return Progress(len(calls), ended, sum(call.tokens for call in calls))

    def _on_line(self, name: str, line: str) -> None:
        if self._verbose:
            print(f"{name:<10} | {line}", file=sys.stderr, flush=True)

    def _on_signals(self, playing: asyncio.Task[Evidence]) -> None:
        def stop() -> None:
            self._interrupted = True
            if self._stopping:  # by the first signal, or at the end: kill what is left
                self._hurry.set()
            else:
                playing.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop)
