"""What is a part of a configuration file, and which part have both services?"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the file. Unknown keys are errors, values never change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )

    def values(self) -> dict[str, Any]:
        """The section as keyword arguments."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class LogSection(Section):
    """Logging, to standard error."""

    format: Literal["auto", "json", "text"] = "auto"
    """"auto": text on a terminal, else json."""
    level: Literal["error", "warning", "info", "debug", "trace"] = "info"
    """What is less severe is not logged. Prompts and outputs never are."""
