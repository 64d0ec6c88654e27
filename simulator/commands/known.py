"""Is there what the options name? Nodes, a model that one of them serves, a task type.

Without these every request would be refused, or treated as of no type: a run that answers nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from scheduler_service.policies.task_types import ALIASES
from simulator import fleet
from simulator.commands.failures import UsageError
from simulator.commands.policy_files import PolicyFile


def check(
    options: argparse.Namespace, groups: Sequence[fleet.Group], files: Sequence[PolicyFile]
) -> None:
    """The model and the task type.

    Raises:
        UsageError: one is unknown; the message has those that are known.
    """
    types = {*ALIASES, *(name for file in files for name in file.config.task_types)}
    if options.task_type not in types:
        raise UsageError(
            f"--task-type: there is no {options.task_type!r}; known: {', '.join(sorted(types))}; "
            "others have a section in task_types of a policy file"
        )
    served = {model for group in groups if group.count for model in group.kind.models}
    model = options.model or groups[0].kind.models[0]
    for file in files:
        known = served | {section.name for section in file.config.models}
        if model not in known:
            raise UsageError(
                f"--model: no node serves {model!r}; known: {', '.join(sorted(known)) or 'none'}; "
                "others are in models of the policy file, or in --nodes as 2xH100-70B=MODEL"
            )


def check_nodes(groups: Sequence[fleet.Group], files: Sequence[PolicyFile]) -> None:
    """Some are there, or can be ordered.

    Raises:
        UsageError: neither.
    """
    scaled = all(file.config.autoscale.enabled for file in files)
    for place, group in enumerate(groups):
        if group.count == 0 and (place or not scaled):
            raise UsageError(
                f"--nodes: 0x{group.kind.name} are no nodes; only the first kind may begin with "
                "none, with --autoscale"
            )
