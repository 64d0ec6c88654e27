"""Streams are ordered and reliable until they break; partitions hold back, in either direction."""

from __future__ import annotations

from typing import Any

from scheduler_service.core.types import MILLISECOND, SECOND
from simulator.agenda import Agenda
from simulator.network import Network, NetworkOptions, Stream


class Ends:
    """Both ends of one stream."""

    def __init__(self, **options: Any) -> None:
        self.agenda = Agenda()
        self.network = Network(self.agenda, NetworkOptions(**options), seed=1)
        self.heard: dict[str, list[tuple[int, Any]]] = {"scheduler": [], "agent": []}
        self.broke: list[str] = []
        self.stream = self.open()

    def open(self, node_id: str = "n0") -> Stream:
        stream = self.network.stream(node_id)
        for name in ("scheduler", "agent"):
            stream.listen(
                at_scheduler=name == "scheduler",
                hear=lambda m, n=name: self.heard[n].append((self.agenda.now, m)),
                on_break=lambda n=name: self.broke.append(n),
            )
        return stream

    def up(self, *messages: Any) -> None:
        for message in messages:
            self.stream.send(message, to_scheduler=True)

    def run(self, until_s: float = 1.0) -> list[Any]:
        end = round(until_s * SECOND)
        while self.agenda.next() <= end:
            self.agenda.run_instant(self.agenda.next())
        self.agenda.run_instant(end)
        return [message for _, message in self.heard["scheduler"]]


def test_messages_arrive_in_order_after_their_delay() -> None:
    ends = Ends(delay=MILLISECOND, sigma=2.0)
    ends.up(*range(50))
    assert ends.run() == list(range(50))
    assert ends.heard["scheduler"][0][0] > 0


def test_messages_of_two_streams_overtake_each_other() -> None:
    ends = Ends(delay=10 * MILLISECOND, sigma=1.5)
    other = ends.open()
    for number in range(20):
        ends.up(number)
        other.send(100 + number, to_scheduler=True)
    heard = ends.run()
    assert heard != sorted(heard, key=lambda n: n % 100)
    assert [n for n in heard if n < 100] == list(range(20))


def test_a_stall_holds_up_all_behind_it() -> None:
    ends = Ends(delay=1, sigma=0.0, stall=1.0, stall_for=50 * MILLISECOND)
    ends.up("a")
    ends.network.options.stall = 0.0
    ends.up("b")
    ends.run()
    assert [at for at, _ in ends.heard["scheduler"]] == [50 * MILLISECOND + 1] * 2


def test_what_breaks_loses_all_on_the_way_and_both_ends_notice() -> None:
    ends = Ends(delay=5 * MILLISECOND, sigma=0.0)
    ends.up("lost")
    ends.stream.break_off()
    ends.up("too late")
    assert ends.run() == []
    assert sorted(ends.broke) == ["agent", "scheduler"]


def test_loss_breaks_the_stream() -> None:
    ends = Ends(loss=1.0)
    ends.up("x")
    assert ends.run() == []
    assert ends.network.broken == 1


def test_a_partition_holds_back_until_it_heals() -> None:
    ends = Ends()
    ends.network.cut("n0")
    ends.up("a", "b")
    assert ends.run(3.0) == []
    ends.network.heal("n0")
    ends.up("c")
    assert ends.run(4.0) == ["a", "b", "c"]
    assert ends.heard["scheduler"][0][0] > 3 * SECOND


def test_a_partition_may_be_one_way() -> None:
    ends = Ends()
    ends.network.cut("n0", to_agent=False)
    ends.up("unheard")
    ends.stream.send("heard", to_scheduler=False)
    assert ends.run() == []
    assert [m for _, m in ends.heard["agent"]] == ["heard"]


def test_a_closed_end_is_noticed_behind_what_it_sent() -> None:
    ends = Ends()
    ends.up("last words")
    ends.stream.close()
    ends.stream.send("to nobody", to_scheduler=False)
    assert ends.run() == ["last words"]
    assert ends.broke == ["scheduler"]
    assert ends.heard["agent"] == []
