"""`batchyard doctor`: is anything wrong with the scheduler and the way to it?"""

from __future__ import annotations

import click

from batchyard.cli.failures import FAILURE, OK
from batchyard.cli.options import pass_settings, server_options
from batchyard.cli.settings import Settings


@click.command()
@server_options
@pass_settings
def doctor(settings: Settings) -> int:
    """Check reach, version, clocks, nodes and telemetry; exit code 1 if anything fails."""
    from batchyard.cli.checkup import checkup
    from batchyard.cli.columns import Column
    from batchyard.cli.output import emit_list

    rows = checkup(settings)
    columns = (
        Column(
            "mark", "", pick=lambda row: {"ok": "✓", "warning": "!", "failed": "✗"}[row["result"]]
        ),
        Column("check", "CHECK"),
        Column("says", "SAYS", fold=True),
        Column("fix", "WHAT TO DO", fold=True),
    )
    emit_list(settings, "checks", rows, columns, id_key="check", empty="")
    return FAILURE if any(row["result"] == "failed" for row in rows) else OK
