"""A body that made nodes fail is refused, whoever sends it, also by the next scheduler."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from batchyard.v1 import inference_pb2
from scheduler_service.core.commands import RememberDeaths
from scheduler_service.core.outcomes import Reason
from scheduler_service.core.types import NEVER, SECOND, Request
from scheduler_service.policies.task_types import TaskTypes
from scheduler_service.quarantine import AGAIN, FILE, MOST, PAUSE, Quarantine
from scheduler_service.rpc.convert import Converter, Parsed
from scheduler_service.rpc.validate import Limits, Refused
from tests.unit.scheduler.small_world import HandClock

CONVERTER = Converter(limits=Limits(), task_types=TaskTypes({}), aliases={}, max_attempts=3)


def parsed(text: str = "poison", **fields: object) -> tuple[Parsed, bytes]:
    """A call, and its bytes."""
    message = inference_pb2.InferenceRequest(
        model="m",
        text=inference_pb2.TextInput(prompt=text),
        **fields,  # type: ignore[arg-type]
    )
    data = message.SerializeToString()
    call = CONVERTER.convert(data, rid=1, now=0, rpc_deadline=NEVER, stream=False)
    return call, data


def condemned(folder: Path | None, clock: HandClock) -> Quarantine:
    """With one body."""
    quarantine = Quarantine(folder, clock)
    call, data = parsed(request_id="first")
    quarantine.add(call.request, data)
    return quarantine


def test_same_body_is_refused_whatever_its_id_and_others_are_not() -> None:
    quarantine = condemned(None, HandClock())
    for fields in ({}, {"request_id": "second"}, {"user_id": "other"}):
        with pytest.raises(Refused) as refused:
            quarantine.check(parsed(**fields)[0])
        assert int(refused.value.error.reason) == int(Reason.POISONED)
    quarantine.check(parsed("potion")[0])
    quarantine.check(parsed("poison, but longer")[0])
    quarantine.check(parsed(params=inference_pb2.GenerationParams(max_tokens=5))[0])


def test_nothing_is_remembered_where_nothing_was_condemned() -> None:
    """A request costs one look at an empty dict then."""
    assert Quarantine(None, HandClock()).alike == {}


def test_it_is_forgotten_when_its_time_is_over() -> None:
    clock = HandClock()
    quarantine = condemned(None, clock)
    clock.instant += 599 * SECOND
    with pytest.raises(Refused, match="next 1 s"):
        quarantine.check(parsed()[0])
    clock.instant += SECOND
    quarantine.check(parsed()[0])
    assert (len(quarantine), quarantine.alike) == (0, {})


def test_next_scheduler_refuses_it_for_what_is_left_of_its_time(tmp_path: Path) -> None:
    clock = HandClock()
    condemned(tmp_path, clock)
    clock.instant += 300 * SECOND
    following = Quarantine(tmp_path, clock)
    with pytest.raises(Refused, match="next 300 s"):
        following.check(parsed()[0])
    clock.instant += 301 * SECOND
    assert len(Quarantine(tmp_path, clock)) == 0


def test_wall_clock_that_went_back_keeps_nobody_out_for_ever(tmp_path: Path) -> None:
    clock = HandClock()
    clock.instant += 1_000_000 * SECOND
    condemned(tmp_path, clock)
    clock.instant -= 1_000_000 * SECOND
    following = Quarantine(tmp_path, clock)
    clock.instant += 601 * SECOND
    following.check(parsed()[0])


def test_oldest_goes_when_there_are_too_many() -> None:
    clock = HandClock()
    quarantine = condemned(None, clock)
    for number in range(MOST):
        clock.instant += 1
        call, data = parsed(f"other {number}")
        quarantine.add(call.request, data)
    assert len(quarantine) == MOST
    assert sum(quarantine.alike.values()) == MOST
    quarantine.check(parsed()[0])


def named(request_id: str = "a", text: str = "poison") -> Request:
    """A call with an id, as it comes in."""
    return parsed(text, request_id=request_id)[0].request


def recalled(quarantine: Quarantine, request_id: str = "a", text: str = "poison") -> list[str]:
    """The nodes that are said to have died with it."""
    call, _ = parsed(text, request_id=request_id)
    quarantine.check(call)
    return list(call.request.former_deaths)


def test_deaths_count_on_under_the_next_scheduler(tmp_path: Path) -> None:
    clock = HandClock()
    request = named()
    Quarantine(tmp_path, clock).remember(RememberDeaths([(request, ("n1", "n2"))]))
    following = Quarantine(tmp_path, clock)
    assert recalled(following) == ["n1", "n2"]
    assert recalled(following, "b") == [], "an equal body is another request"
    assert recalled(following, text="another body") == []
    clock.instant += 601 * SECOND
    assert recalled(following) == []
    assert following.alike == {}


def test_request_that_ended_well_is_no_suspect_under_the_next_scheduler(tmp_path: Path) -> None:
    clock = HandClock()
    quarantine = Quarantine(tmp_path, clock)
    quarantine.remember(RememberDeaths([(named(), ("n1",)), (named("b"), ("n1",))]))
    clock.instant += PAUSE
    quarantine.remember(RememberDeaths([(named(), ())]))
    following = Quarantine(tmp_path, clock)
    assert (recalled(following), recalled(following, "b")) == ([], ["n1"])


async def test_swarm_of_deaths_is_written_once_in_a_while_and_at_the_end(tmp_path: Path) -> None:
    clock = HandClock()
    quarantine = Quarantine(tmp_path, clock)
    for name in "abc":
        quarantine.remember(RememberDeaths([(named(name), ("n1",))]))
    assert recalled(Quarantine(tmp_path, clock), "c") == []
    quarantine.close()
    assert recalled(Quarantine(tmp_path, clock), "c") == ["n1"]


def test_suspects_are_bounded_and_the_oldest_goes() -> None:
    quarantine = Quarantine(None, HandClock())
    deaths = [(named(str(number)), ("n1",)) for number in range(MOST + 1)]
    quarantine.remember(RememberDeaths(deaths))
    assert sum(quarantine.alike.values()) == MOST
    assert (recalled(quarantine, "0"), recalled(quarantine, "1")) == ([], ["n1"])


@pytest.mark.parametrize("text", ["", "[]", '{"bodies": 3}', '{"bodies": [[1]]}', "\x00"])
def test_damaged_file_stops_no_scheduler(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text(text)
    with caplog.at_level(logging.WARNING):
        quarantine = condemned(tmp_path, HandClock())
    assert "damaged" in caplog.text
    assert len(quarantine) == 1
    assert len(json.loads((tmp_path / FILE).read_text())["bodies"]) == 1


def test_full_disk_keeps_it_in_memory_until_it_can_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).mkdir()
    clock = HandClock()
    with caplog.at_level(logging.WARNING):
        quarantine = condemned(tmp_path, clock)
    assert "cannot be written" in caplog.text
    with pytest.raises(Refused):
        quarantine.check(parsed()[0])
    (tmp_path / FILE).rmdir()
    quarantine.check(parsed("potion")[0])
    assert not (tmp_path / FILE).exists(), "not with each request"
    clock.instant += AGAIN
    quarantine.check(parsed("potion")[0])
    with pytest.raises(Refused):
        Quarantine(tmp_path, clock).check(parsed()[0])
