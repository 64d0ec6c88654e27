"""The file that remembers addresses by name, and which of them is current."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from batchyard.cli.failures import CliError


@dataclass(frozen=True, slots=True)
class Context:
    """A scheduler's addresses; None: not said."""

    address: str | None = None
    admin_address: str | None = None


@dataclass(slots=True)
class ContextFile:
    """All that the file holds."""

    current: str | None = None
    contexts: dict[str, Context] = field(default_factory=dict)


def current(path: Path) -> Context:
    """The current context; an empty one when there is no file or no current context."""
    if not path.exists():
        return Context()
    stored = load(path)
    return stored.contexts.get(stored.current or "", Context())


def load(path: Path) -> ContextFile:
    """Read the file; an absent one is empty, a malformed one is an error that names it."""
    if not path.exists():
        return ContextFile()
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        contexts = {
            str(name): Context(**{key: str(value) for key, value in entry.items()})
            for name, entry in (document.get("contexts") or {}).items()
        }
        return ContextFile(current=document.get("current"), contexts=contexts)
    except (yaml.YAMLError, AttributeError, TypeError, UnicodeDecodeError) as error:
        raise CliError(
            f"cannot read {path}",
            why=f"it is not a file of contexts: {error}",
            next_step="correct it, or delete it and `batchyard context save NAME --address ...`",
        ) from error


def save(path: Path, stored: ContextFile) -> None:
    """Write the file whole, by way of a temporary one beside it."""
    import yaml

    entries = {
        name: {k: v for k, v in _pairs(context) if v} for name, context in stored.contexts.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(yaml.safe_dump({"current": stored.current, "contexts": entries}), "utf-8")
    draft.replace(path)


def _pairs(context: Context) -> list[tuple[str, str | None]]:
    return [("address", context.address), ("admin_address", context.admin_address)]
