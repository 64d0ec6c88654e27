"""`batchyard explain ID`: why a request waits, or what was decided for it."""

from __future__ import annotations

import click

from batchyard.cli.asks import ask_admin
from batchyard.cli.options import pass_settings, server_options
from batchyard.cli.output import emit_document, write_lines
from batchyard.cli.settings import Settings


@click.command()
@click.argument("request_id")
@click.option("--tenant", default="", help="Whose it is, where two tenants use the id.")
@click.option(
    "--lang",
    type=click.Choice(["en", "zh"]),
    default="en",
    show_default=True,
    help="Language of the reasons.",
)
@server_options
@pass_settings
def explain(settings: Settings, request_id: str, tenant: str, lang: str) -> None:
    """Say what a request waits for and what would make it run, or what was decided for it.

    A waiting request: its place, who goes first and why, every node with what speaks against it. A
    finished one: each decision with its reason, and the nodes that lost.
    """
    show_explanation(settings, request_id, tenant, lang)


def show_explanation(settings: Settings, request_id: str, tenant: str, language: str) -> None:
    """Ask, and write it in the form that was asked for."""
    from batchyard.cli.views.explain import explanation_document, explanation_lines

    found = ask_admin(
        settings, lambda admin: admin.explain(request_id, tenant=tenant, language=language)
    )
    document = explanation_document(found)
    form = settings.format()
    if form in ("json", "yaml"):
        emit_document(form, document)
    elif form == "name":
        print(document["request"]["request_id"])
    else:
        write_lines(explanation_lines(document, language))
