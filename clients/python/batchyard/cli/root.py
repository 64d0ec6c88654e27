"""The command `batchyard` itself: its list of commands, and how it ends."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import click

from batchyard.cli import failures
from batchyard.cli.columns import printable
from batchyard.cli.lazy import Entry, LazyGroup
from batchyard.cli.options import server_options

_AT = "batchyard.cli.commands."
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
ENTRIES = {
    "dev": Entry(_AT + "dev:dev", "Start a scheduler and agents on this machine, to try things."),
    "demo": Entry(_AT + "demo:demo", "Play a peak of requests and show every decision."),
    "run": Entry(_AT + "run:run", "Send one prompt and print the answer."),
    "status": Entry(_AT + "status:status", "Queue, nodes, totals and scale target; --watch: live."),
    "top": Entry(_AT + "top:top", "Follow it live on the whole terminal: the dashboard's twin."),
    "report": Entry(_AT + "report:report", "The report over a window, with a diagnosis in words."),
    "nodes": Entry(_AT + "nodes:nodes", "List, show, cordon, uncordon, drain.", ("node",)),
    "models": Entry(_AT + "models:models", "List, load, unload models.", ("model",)),
    "queues": Entry(_AT + "queues:queues", "List what waits, pause, resume.", ("queue",)),
    "autoscale": Entry(_AT + "autoscale:autoscale", "Freeze the autoscaler, or unfreeze it."),
    "policy": Entry(
        _AT + "policy:policies", "Show, compare and apply policies, live.", ("policies",)
    ),
    "debug": Entry(_AT + "debug:debug", "Set the log level; write a dump to send along."),
    "doctor": Entry(_AT + "doctor:doctor", "Check a scheduler, or this host as a node."),
    "requests": Entry(_AT + "requests:requests", "List, show, cancel requests.", ("request",)),
    "explain": Entry(_AT + "explain:explain", "Why a request waits, or what was decided for it."),
    "jobs": Entry(_AT + "jobs:jobs", "Store many requests, fetch their results.", ("job",)),
    "events": Entry(_AT + "events:events", "List what happened, or follow it live.", ("event",)),
    "scheduler": Entry(_AT + "services:scheduler", "Run the scheduler service."),
    "agent": Entry(_AT + "services:agent", "Run a node agent."),
    "tokens": Entry(_AT + "services:tokens", "Create, list, revoke tokens.", ("token",)),
    "certs": Entry(_AT + "services:certs", "Make and revoke certificates.", ("cert",)),
    "simulate": Entry(_AT + "services:simulate", "Compare policies on a trace, in simulated time."),
    "plan": Entry(_AT + "services:plan", "How many nodes of which kind a workload needs."),
    "replay": Entry(_AT + "services:replay", "Run a recorded scheduler's decisions again."),
    "config": Entry(_AT + "config:config", "Check a configuration file, show what is in force."),
    "context": Entry(_AT + "context:context", "Remember schedulers by name.", ("contexts",)),
    "completion": Entry(_AT + "completion:completion", "Print the shell's completion script."),
    "version": Entry(_AT + "version:version", "Print the version."),
}


@click.group(
    cls=LazyGroup, entries=ENTRIES, context_settings={"help_option_names": ["-h", "--help"]}
)
@server_options
def batchyard() -> None:
    """Batchyard: a scheduler for AI inference.

    Priorities are 1..10, 10 = most urgent. Durations are written 500ms, 2s, 5m.

    Try it: `batchyard dev` in one terminal, `batchyard run "Hello" --stream` in another.
    """


def execute(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code, after any error went to standard error."""
    try:
        outcome = batchyard.main(list(arguments), prog_name="batchyard", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return failures.USAGE if isinstance(error, click.UsageError) else failures.FAILURE
    except (click.Abort, KeyboardInterrupt):
        return failures.INTERRUPTED
    except failures.CliError as error:
        print(error.text(), file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        _write_no_more()  # the reader of the pipe has gone (`| head`)
        return failures.FAILURE
    except OSError as fault:
        if fault.filename is None and fault.errno in _FULL:
            print(f"error: the output cannot be written: {fault.strerror}", file=sys.stderr)
            _write_no_more()
            return failures.FAILURE
        if fault.filename is None:  # no file that somebody named: a fault of ours
            raise
        print(f"error: {printable(str(fault.filename))}: {fault.strerror}", file=sys.stderr)
        return failures.FAILURE
    except UnicodeEncodeError:
        wrong = [text for text in arguments if not _is_text(text)]
        if not wrong:  # a fault of ours
            raise
        print(f"error: {wrong[0]!a} is not UTF-8, so it can be no name here", file=sys.stderr)
        return failures.USAGE
    return outcome if isinstance(outcome, int) else failures.OK


def _write_no_more() -> None:
    """Keep Python from complaining at exit of what standard output did not take."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_text(argument: str) -> bool:
    """Python gives bytes that are no UTF-8 as halves of characters."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True
