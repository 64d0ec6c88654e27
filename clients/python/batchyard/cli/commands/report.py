"""`batchyard report`: what happened over a window, and what is wrong, in words."""

from __future__ import annotations

import re

import click

from batchyard.cli.asks import ask_admin
from batchyard.cli.options import DurationType, pass_settings, report_options
from batchyard.cli.output import emit_document, write_lines
from batchyard.cli.settings import Settings


def _web_address(_context: click.Context, _option: click.Parameter, given: str) -> str:
    """As the scheduler's own `http.jaeger_url`: what people click on leads nowhere else."""
    if given and not re.fullmatch(r"https?://\S+", given):
        raise click.BadParameter(f"{given!r} is no address: write http://HOST:PORT")
    return given


@click.command()
@click.option(
    "--since",
    "--window",
    "window",
    type=DurationType(minimum_s=1),
    default="5m",
    show_default=True,
    help="What averages, rates and the diagnosis look at.",
)
@click.option(
    "--lang",
    type=click.Choice(["en", "zh"]),
    default="en",
    show_default=True,
    help="Language of titles and diagnosis.",
)
@click.option(
    "--events",
    "max_events",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="Most events to include.",
)
@click.option(
    "--jaeger-url",
    default="",
    callback=_web_address,
    envvar="BATCHYARD_JAEGER_URL",
    show_envvar=True,
    help="Where traces are shown; -o html links there.",
)
@report_options
@pass_settings
def report(settings: Settings, window: float, lang: str, max_events: int, jaeger_url: str) -> None:
    """Print the report over a window, with a diagnosis in words; -o html is one whole page."""
    from batchyard.cli.output import console
    from batchyard.cli.screens import report_screen, report_tsv
    from batchyard.cli.views.report import report_document
    from batchyard.cli.words import LANGUAGES

    message = ask_admin(
        settings,
        lambda admin: admin.report(window=window, language=lang, max_events=max_events),
    )
    document = report_document(message)
    form = settings.format()
    if form in ("json", "yaml"):
        emit_document(form, document)
    elif form == "html":
        from batchyard.cli.html_report import html_report

        print(html_report(document, LANGUAGES[lang], lang=lang, jaeger_url=jaeger_url))
    elif form == "name":
        print(document["report_name"])
    elif form == "tsv":
        write_lines(report_tsv(document, LANGUAGES[lang]))
    else:
        console().print(report_screen(document, LANGUAGES[lang]))
