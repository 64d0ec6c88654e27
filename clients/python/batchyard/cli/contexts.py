"""The file that remembers schedulers by name, and which of them is current.

It names the files with tokens and keys; the secrets themselves are not in it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from batchyard.cli.failures import CliError


@dataclass(frozen=True, slots=True)
class Context:
    """How a scheduler is reached; None: not said."""

    address: str | None = None
    admin_address: str | None = None
    token_file: str | None = None
    tls_ca: str | None = None  # a file, "system" or "off"
    tls_cert: str | None = None
    tls_key: str | None = None


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


def named(path: Path, name: str) -> Context:
    """That context.

    Raises:
        CliError: there is none.
    """
    stored = load(path)
    if name not in stored.contexts:
        raise CliError(
            f"there is no context {name!r}",
            why=f"known: {', '.join(sorted(stored.contexts)) or 'none'}",
            next_step=f"batchyard context save {name} --address HOST:PORT",
        )
    return stored.contexts[name]


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
        name: {key: value for key, value in asdict(context).items() if value}
        for name, context in stored.contexts.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(yaml.safe_dump({"current": stored.current, "contexts": entries}), "utf-8")
    draft.replace(path)
