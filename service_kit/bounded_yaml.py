"""How is a text read as YAML that others may have sent? With bounds on what a short one can become.

Aliases may make a text of a few hundred characters into millions of nodes, or into a loop, and each
level of nesting is one of Python's stack.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

DEPTH_MAX: Final = 32
REPEATED_MAX: Final = 10_000  # nodes that aliases stand for, in all


class Unreadable(Exception):
    """It is not YAML, or more than a configuration needs. The text says where."""


def read(text: str) -> tuple[yaml.Node | None, Any]:
    """What the text says: as nodes, which know their lines, and as values.

    Raises:
        Unreadable: it cannot be read.
    """
    try:
        node = _Loader(text).get_single_node()
        return node, None if node is None else yaml.safe_load(text)
    except yaml.YAMLError as fault:
        raise Unreadable(f"is not YAML: {_words(fault)}") from None
    except Exception as fault:  # what PyYAML does with a 13th month, or `!!bool x`
        raise Unreadable(f"has a value that is not YAML: {str(fault)[:200]}") from None


def _words(fault: yaml.YAMLError) -> str:
    """In one line, without PyYAML's name for a text that is no file."""
    return " ".join(str(fault).replace('in "<unicode string>", ', "at ").split())


class _Loader(yaml.SafeLoader):
    """Composes nodes within the bounds."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._composed = 0
        self._repeated = 0
        self._sizes: dict[str, int] = {}  # nodes behind each anchor that is whole

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node.

        Raises:
            ComposerError: it is too deep, or stands for too many.
        """
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark, anchor = event.start_mark, event.anchor
        if isinstance(event, yaml.AliasEvent):
            if anchor in self.anchors and anchor not in self._sizes:
                raise _fault(f"*{anchor} stands within itself", mark)
            self._count_repeated(self._sizes.get(anchor, 0), mark)
        if self._depth >= DEPTH_MAX:
            raise _fault(f"it is nested deeper than {DEPTH_MAX} levels", mark)
        self._depth += 1
        before = self._composed + self._repeated
        node = super().compose_node(parent, index)
        self._depth -= 1
        self._composed += 1
        if isinstance(node, yaml.ScalarNode) and _is_half(node.value):
            raise _fault("half a character, as \\ud800, is none", mark)
        if anchor is not None and not isinstance(event, yaml.AliasEvent):
            self._sizes[anchor] = self._composed + self._repeated - before
        return node

    def _count_repeated(self, size: int, mark: yaml.Mark) -> None:
        self._repeated += size
        if self._repeated > REPEATED_MAX:
            raise _fault(f"aliases stand for more than {REPEATED_MAX} values", mark)


def _is_half(text: str) -> bool:
    """Whether it could not be sent on or written down: it holds a surrogate."""
    return not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text)


def _fault(problem: str, mark: yaml.Mark) -> yaml.YAMLError:
    return yaml.composer.ComposerError(None, None, problem, mark)
