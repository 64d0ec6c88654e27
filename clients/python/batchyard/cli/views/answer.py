"""An answer that is no text, for people: what can be read whole, the rest in a short form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from batchyard.cli.columns import for_terminal, printable

if TYPE_CHECKING:
    from batchyard.results import Result
    from batchyard.v1 import RawOutput, Tensor

_SHOWN = 4  # numbers of a vector


def beside_text(result: Result) -> Iterator[str]:
    """A line each for tool calls, bodies, vectors and tensors, in the order of the outputs.

    A body that is JSON or text is given as its engine wrote it, and may have several lines.
    """
    for call in result.tool_calls:
        yield f"{printable(call.name)}({for_terminal(call.arguments_json)})"
    for output in result.proto.outputs:
        if output.HasField("raw"):
            yield _body(output.raw)
        if output.embedding:
            yield _vector(output.embedding)
        for tensor in output.tensors:
            yield _tensor(tensor)


def _body(raw: RawOutput) -> str:
    media_type = raw.content_type.partition(";")[0].strip().lower()
    if media_type.startswith("text/") or media_type.endswith(("/json", "+json")):
        try:
            return for_terminal(raw.data.decode("utf-8").rstrip("\n"))
        except UnicodeDecodeError:
            pass
    return f"{printable(raw.content_type) or 'body'}, size {len(raw.data)}"


def _vector(numbers: Sequence[float]) -> str:
    first = ", ".join(f"{number:.6g}" for number in islice(numbers, _SHOWN))
    more = ", ..." if len(numbers) > _SHOWN else ""
    return f"vector of {len(numbers)}: {first}{more}"


def _tensor(tensor: Tensor) -> str:
    return f"{printable(tensor.name)}: {printable(tensor.datatype)} {list(tensor.shape)}"
