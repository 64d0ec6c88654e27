"""`batchyard run`: one prompt, one answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from batchyard import errors
from batchyard.cli.asks import ask
from batchyard.cli.columns import for_terminal
from batchyard.cli.durations import format_ms
from batchyard.cli.failures import CliError
from batchyard.cli.options import PRIORITY_TEXT, DurationType, pass_settings, server_options
from batchyard.cli.output import emit_document, emit_line, note, write_lines
from batchyard.cli.settings import Settings

if TYPE_CHECKING:
    from batchyard import AsyncClient
    from batchyard.cli.views.plain import Document
    from batchyard.output import StreamEvent
    from batchyard.results import Result


@click.command()
@click.argument("prompt")
@click.option("-m", "--model", help="Model to ask; else the only one, else the server's default.")
@click.option(
    "--priority",
    type=click.IntRange(1, 10),
    help=f"{PRIORITY_TEXT}. [default: the task type's, else 5]",
)
@click.option("--stream", is_flag=True, help="Print the output as it comes.")
@click.option("--task-type", help="summarization, classification, chat, ...: selects defaults.")
@click.option("--max-wait", type=DurationType(), help="Longest time in the queue.")
@click.option("--timeout", type=DurationType(minimum_s=0.001), help="Longest time in all.")
@click.option(
    "--degrade", multiple=True, metavar="MODEL", help="A model that may answer instead; repeatable."
)
@click.option("--max-tokens", type=click.IntRange(1), help="Longest output.")
@click.option("--temperature", type=click.FloatRange(0), help="0: always the likeliest token.")
@click.option("--tenant", help="For whom.")
@click.option("--request-id", help="Idempotency key: the same id never runs twice.")
@server_options
@pass_settings
def run(settings: Settings, /, prompt: str, stream: bool, **options: Any) -> None:
    """Send PROMPT and print the answer; with - the prompt is read from standard input.

    Ctrl-C cancels the request on the server.
    """
    if prompt == "-":
        prompt = _read_stdin()
    options["degrade"] = list(options["degrade"]) or None

    async def work(client: AsyncClient) -> Result:
        known = [] if options["model"] else await _models(client)
        if len(known) == 1:
            options["model"] = known[0]
        try:
            if stream:
                return await _stream(settings, client, prompt, options)
            return await client.generate(prompt, **options)
        except errors.InvalidRequest as error:
            if error.field == "request.model" and not options["model"] and known:
                raise _several(known) from error
            raise

    _finish(settings, ask(settings, work), streamed=stream)


def _read_stdin() -> str:
    try:
        prompt = sys.stdin.buffer.read().decode("utf-8").strip("\n")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"standard input is not UTF-8: {error}") from error
    if not prompt:
        raise click.UsageError("standard input was empty: there is no prompt")
    return prompt


async def _models(client: AsyncClient) -> list[str]:
    """What could be asked for by name, adapters aside; what no node in service has, only where
    there is nothing else.
    """
    found = [model async for model in client.list_models() if not model.base_model]
    there = [model for model in found if model.state]
    return sorted(model.model for model in there or found)


def _several(names: list[str]) -> CliError:
    """The server has no default among these."""
    return CliError(
        "say which model",
        why=f"there are several: {', '.join(names)}",
        next_step=f"batchyard run -m {names[0]} ...",
        exit_code=2,
    )


async def _stream(
    settings: Settings, client: AsyncClient, prompt: str, options: dict[str, Any]
) -> Result:
    """Print events as they come: text for people, a JSON line each for programs."""
    as_json = settings.format() in ("json", "yaml")
    as_text = not as_json and settings.output != "name"
    begun = False
    try:
        async with client.stream(prompt, **options) as events:
            async for event in events:
                if as_json:
                    emit_line(_event_document(event))
                elif as_text and event.text:
                    print(for_terminal(event.text), end="", flush=True)
                    begun = True
            return events.result
    finally:
        if begun:
            print(flush=True)  # errors and the shell's prompt begin on a line of their own


def _event_document(event: StreamEvent) -> Document:
    """The fields that the event has; `text` always."""
    document: Document = {"text": event.text, "offset": event.offset}
    if event.reasoning:
        document["reasoning"] = event.reasoning
    if event.choice:
        document["choice"] = event.choice
    return document


def _finish(settings: Settings, result: Result, *, streamed: bool) -> None:
    form = settings.format()
    if form in ("json", "yaml"):
        document = _document(result)
        if streamed:
            emit_line({"result": document})
        else:
            emit_document(form, document)
    elif form == "name":
        print(result.request_id)
    else:
        _print_answer(result, streamed=streamed)
        if form == "wide" or sys.stderr.isatty():
            note(_summary(result))


def _print_answer(result: Result, *, streamed: bool) -> None:
    """Print the text, where the stream has not, and what there is beside it."""
    from batchyard.cli.views.answer import beside_text

    others = list(beside_text(result))
    if not streamed and (result.text or not others):
        print(for_terminal(result.text))
    write_lines(others)


def _document(result: Result) -> Document:
    """The result as on the wire, with the text of choice 0 in front."""
    from batchyard.cli.views.plain import plain

    document = plain(result.proto)
    document["text"] = result.text
    first = ("request_id", "model", "text", "finish_reason")
    return {key: document[key] for key in first} | document


def _summary(result: Result) -> str:
    """What happened, on one line: model, node, tokens, times, and what was out of the ordinary."""
    parts = [f"{result.model} on {result.node_id}"]
    if result.usage.output_tokens is not None:
        parts.append(f"{result.usage.output_tokens} tokens")
    timings = result.timings
    if timings.queue is not None:
        parts.append(f"queued {format_ms(timings.queue.total_seconds() * 1000)}")
    if timings.receive_time and timings.finish_time:
        took = timings.finish_time - timings.receive_time
        parts.append(f"took {format_ms(took.total_seconds() * 1000)}")
    if result.finish_reason == "length":
        parts.append("cut at the longest output")
    if result.degraded:
        parts.append(f"degraded ({result.degrade_reason})")
    if len(result.attempts) > 1:
        parts.append(f"{len(result.attempts)} attempts")
    if result.replayed:
        parts.append("replayed")
    if result.trace_id:
        parts.append(f"trace {result.trace_id}")
    return "[" + " · ".join(parts) + "]"
