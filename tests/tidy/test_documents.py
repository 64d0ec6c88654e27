"""Documents name things that exist: links, headings, files, make targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from tests.tidy.source_tree import ROOT, everything, files, inside, refuse

FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
# As documents write one: a folder, ending in a slash, or a file with a known ending, below one.
PATH = re.compile(r"\w[\w./-]*/(?:[\w.-]+\.(?:pyi?|md|toml|ya?ml|proto|json|txtpb|binpb|sh))?")
TARGET = re.compile(r"^([a-z-]+):.*## ", re.MULTILINE)


@cache
def prose(path: Path) -> str:
    """Return a document without its code blocks."""
    return FENCED.sub("", path.read_text(encoding="utf-8"))


@cache
def anchors(path: Path) -> set[str]:
    """Return the names that a renderer gives to the headings."""
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(prose(path)))
    return {title.replace(" ", "-") for title in plain}


@cache
def known_paths() -> frozenset[str]:
    """Return every file and folder, each with all its shorter spellings (`core/relay.py`)."""
    known = set()
    for file in everything():
        parts = file.relative_to(ROOT).parts
        for start in range(len(parts)):
            known.update("/".join(parts[start:end]) for end in range(start + 1, len(parts) + 1))
    return frozenset(known)


def broken_links(document: Path) -> Iterator[str]:
    for link in LINK.findall(prose(document)):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (document.parent / name).resolve() if name else document
        if not target.exists():
            yield f"{inside(document)}: `{link}` does not exist"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{inside(document)}: `{link}`: no such heading"


def missing_paths(document: Path) -> Iterator[str]:
    for code in CODE.findall(prose(document)):
        named = PATH.fullmatch(code)
        if named is None or code.rstrip("/") in known_paths():
            continue
        if not (document.parent / code).exists():
            yield f"{inside(document)}: `{code}` does not exist"


def test_links_lead_somewhere() -> None:
    broken = [line for document in files(".md") for line in broken_links(document)]
    refuse("links of documents lead somewhere", broken)


def test_paths_in_documents_exist() -> None:
    missing = [line for document in files(".md") for line in missing_paths(document)]
    refuse("paths in documents exist", missing)


def test_every_make_target_is_in_the_contributors_table() -> None:
    targets = TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    unknown = [target for target in targets if f"`make {target}`" not in contributing]
    assert targets
    refuse("CONTRIBUTING.md tells of every make target", unknown)
