"""Any service's configuration: layers, places, and every fault once."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from service_kit.config_faults import Finding
from service_kit.config_sections import LogSection, Section
from service_kit.config_sources import ConfigError, Form, LoadedConfig


class Wheel(Section):
    size: int = 1
    spokes: int = 20


class Horse(Section):
    name: str
    pulls: int = 0


class Team(Section):
    left: Horse | None = None
    right: Horse | None = None


class Cart(Section):
    wheels: tuple[Wheel, ...] = Field(min_length=1, max_length=4)
    load: int = 0
    load_max: int = 10
    by_name: dict[str, Wheel] = Field(default_factory=dict)
    team: Team = Team()
    log: LogSection = LogSection()


def overloaded(cart: Cart) -> Iterator[Finding]:
    if cart.team.left is not None and cart.team.left.pulls < 0:
        yield Finding(("team.left.pulls",), "pushes")
    if cart.load > cart.load_max:
        yield Finding(("load", "load_max"), "is above load_max")


def square(values: Mapping[str, Any]) -> Iterator[Finding]:
    wheels = values.get("wheels")
    for index, wheel in enumerate(wheels if isinstance(wheels, list) else []):
        if wheel.get("size") == 4:
            yield Finding((f"wheels[{index}]",), "is square")


FORM = Form(
    model=Cart,
    file_name="cart.yaml",
    env_prefix="CART__",
    judge_config=overloaded,
    judge_values=square,
    when_missing={"wheels": "a cart needs a wheel"},
)


def load(folder: Path, text: str | None, **sources: Any) -> LoadedConfig[Cart]:
    path = None
    if text is not None:
        path = folder / "cart.yaml"
        path.write_text(text, encoding="utf-8")
    return FORM.load(path, environ={"XDG_CONFIG_HOME": str(folder), **sources})


def faults(folder: Path, text: str | None, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, **environ)
    return [problem.replace(f"{folder}/", "") for problem in caught.value.problems]


def test_flags_of_both_forms_win_over_the_environment_and_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cart.yaml"
    path.write_text("wheels: [{size: 3}]\nload: 1\nload_max: 2\nlog: {level: error}")
    loaded = FORM.load(
        path,
        environ={"CART__LOAD": "5", "CART__LOAD_MAX": "6", "CART__LOG__LEVEL": "debug"},
        flags={"load_max": 7},
        settings=["log.level=trace"],
    )
    cart = loaded.config
    assert (cart.wheels[0].size, cart.load, cart.load_max, cart.log.level) == (3, 5, 7, "trace")
    assert loaded.origins == {
        "wheels": f"{path}:1",
        "wheels[0]": f"{path}:1",
        "load": "env CART__LOAD",
        "load_max": "flag",
        "log": f"{path}:4",
        "log.level": "flag",
    }


def test_a_bad_entry_of_a_list_does_not_make_the_list_seem_missing(tmp_path: Path) -> None:
    told = faults(tmp_path, "wheels:\n- {size: big}\n- {sze: 1}\n- {size: 4}\nload: 11")
    assert len(told) == 3
    assert told[0].startswith("wheels[0].size (cart.yaml:2): 'big' should be a valid integer")
    assert told[1:] == [
        'wheels[1].sze (cart.yaml:3): is no key here; did you mean "size"?',
        "wheels[2] (cart.yaml:4): is square",
    ]


def test_what_is_missing_is_told_in_the_services_own_words(tmp_path: Path) -> None:
    assert faults(tmp_path, "load: 1") == ["wheels: a cart needs a wheel"]
    assert faults(tmp_path, None, CART__WHEELS="[]") == [
        "wheels (env CART__WHEELS): a cart needs a wheel"
    ]


@pytest.mark.parametrize("text", ["a: [", "- a", "\0"])
def test_of_a_file_that_says_nothing_only_that_is_told(tmp_path: Path, text: str) -> None:
    (told,) = faults(tmp_path, text)
    assert told.startswith("cart.yaml: ")


def test_values_that_contradict_are_judged_beside_other_faults(tmp_path: Path) -> None:
    told = faults(tmp_path, "wheels: [{}]\nload: 11\nlog: {level: loud}")
    assert told[1:] == ["load (cart.yaml:2): is above load_max"]
    (told_once,) = faults(tmp_path, "wheels: [{}]\nload: 11\nload_max: few")
    assert told_once.startswith("load_max (cart.yaml:3): 'few' should be")


def test_several_faults_of_one_value_do_not_hide_those_of_its_neighbours(tmp_path: Path) -> None:
    """It is left out once; what lies beside it is judged as ever."""
    told = faults(
        tmp_path, "wheels: [{}]\nteam:\n  right: {nme: a, age: 3}\n  left: {name: b, pulls: -1}"
    )
    assert "team.left.pulls (cart.yaml:4): pushes" in told
    assert len(told) == 4


def test_entries_of_a_list_are_judged_though_the_list_has_a_fault(tmp_path: Path) -> None:
    told = faults(tmp_path, "wheels: [{}, {size: 4}, {}, {}, {}]")
    assert len(told) == 2
    assert told[1] == "wheels[1] (cart.yaml:1): is square"


def test_an_unknown_key_below_a_name_is_compared_with_the_keys_there(tmp_path: Path) -> None:
    (told,) = faults(tmp_path, "wheels: [{}]\nby_name: {left: {spoke: 3}}")
    assert told.endswith('by_name.left.spoke (cart.yaml:2): is no key here; did you mean "spokes"?')


def test_a_check_without_a_file_names_the_one_that_it_found(tmp_path: Path) -> None:
    out = io.StringIO()
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert FORM.check(None, environ=environ, out=out) == 1
    assert out.getvalue().splitlines()[-1] == "the configuration: 1 to correct"
    folder = tmp_path / "batchyard"
    folder.mkdir()
    (folder / "cart.yaml").write_text("wheels: [{}]")
    out = io.StringIO()
    assert FORM.check(None, environ=environ, out=out) == 0
    assert out.getvalue() == f"{folder / 'cart.yaml'}: valid\n"
