"""What is told of a wrong value."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from service_kit.config_faults import wrong_value


class _Refusing(BaseModel):
    value: str

    @field_validator("value")
    @classmethod
    def _never(cls, _: str) -> str:
        raise ValueError("is not good")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("plain", "'plain' is not good"),
        ("http://me:hush@host:9/v1", "'http://***@host:9/v1' is not good"),
        ("me:hu/s//h@host:9", "***@host:9"),
        ("http://me:hu@s/h@host", "'http://***@host' is not good"),
    ],
)
def test_a_wrong_address_is_told_without_its_password(given: str, told: str) -> None:
    with pytest.raises(ValidationError) as fault:
        _Refusing(value=given)
    found: Any = fault.value.errors()[0]
    text = wrong_value(found)
    assert told in text
    assert "hu" not in text


class _Nested(BaseModel):
    section: _Refusing
    names: dict[str, int]
    word: str = Field(pattern="^[a-z]+$")


def test_what_is_no_section_is_told_without_names_of_classes() -> None:
    with pytest.raises(ValidationError) as fault:
        _Nested.model_validate({"section": "x", "names": [], "word": "X"})
    assert [wrong_value(found) for found in fault.value.errors()] == [
        "'x' should be a section: keys and their values",
        "should be a section: names and their values",
        "'X' should match pattern '^[a-z]+$'",
    ]
