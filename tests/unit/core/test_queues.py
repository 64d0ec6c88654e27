"""The queue against a plain sorted list, and its cursors against the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.outcomes import RequestClass
from scheduler_service.core.queues import Band, PoolQueue
from scheduler_service.core.types import Request
from scheduler_service.policies.ordering import Strict

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["push", "take", "return", "remove"]),
        st.integers(1, 10),
        st.sampled_from(list(RequestClass)),
        st.integers(0, 20),
    ),
    max_size=50,
)


def key(request: Request) -> tuple[int, int, int]:
    """The order of `strict`: class, priority, place."""
    return (request.request_class, -request.priority, request.place)


@given(ACTIONS)
def test_queue_does_as_a_sorted_list(
    actions: list[tuple[str, int, RequestClass, int]],
) -> None:
    queue, model, out = PoolQueue(0), list[Request](), list[Request]()
    for rid, (what, priority, cls, index) in enumerate(actions, 1):
        if what == "push":
            request = Request(rid, "", "m", priority, request_class=cls, place=rid)
            queue.push(request)
            model.append(request)
        elif what == "take" and model:
            walk = queue.walk(Strict(), 0)
            head = walk.peek()
            assert head is min(model, key=key)
            walk.take(head)
            walk.finish()
            model.remove(head)
            out.append(head)
        elif what == "return" and out:
            request = out.pop(index % len(out))
            queue.push(request, returning=True)
            model.append(request)
        elif what == "remove" and model:
            request = model.pop(index % len(model))
            assert queue.remove(request)
            assert not queue.remove(request)
        check(queue, model)


def check(queue: PoolQueue, model: list[Request]) -> None:
    """Everything that the queue says of itself."""
    assert len(queue) == len(model)
    assert sorted(queue, key=key) == sorted(model, key=key)
    interactive = [r for r in model if r.request_class is RequestClass.INTERACTIVE]
    assert queue.interactive == len(interactive)
    assert queue.jobs == len(model) - len(interactive)
    assert queue.oldest() is min(model, key=lambda r: r.place, default=None)
    assert queue.oldest(RequestClass.JOB) is min(
        (r for r in model if r.request_class is RequestClass.JOB),
        key=lambda r: r.place,
        default=None,
    )
    for (cls, priority), band in queue.bands.items():
        mine = [r for r in model if (r.request_class, r.priority) == (cls, priority)]
        assert list(band) == sorted(mine, key=lambda r: r.place)
        assert queue.depth(cls, priority) == len(mine)


@given(ACTIONS, st.integers(0, 4))
def test_walk_takes_by_order_and_by_floor_as_a_model_does(
    actions: list[tuple[str, int, RequestClass, int]], floor_every: int
) -> None:
    """One walk over the whole queue, taking all, beside the rule written down plainly."""
    queue, model = PoolQueue(floor_every), list[Request]()
    for rid, (_, priority, cls, _) in enumerate(actions, 1):
        request = Request(rid, "", "m", priority, request_class=cls, place=rid)
        queue.push(request)
        model.append(request)
    walk = queue.walk(Strict(), 0)
    since, job_turn = 0, False
    while model:
        floor = 0 < floor_every <= since + 1
        mine = [r for r in model if (r.request_class is RequestClass.JOB) is job_turn]
        expected = min(mine or model, key=lambda r: r.place) if floor else min(model, key=key)
        head = walk.peek()
        assert head is expected
        assert walk.floor is floor
        walk.take(head)
        model.remove(head)
        since = 0 if floor else since + 1
        job_turn = head.request_class is RequestClass.INTERACTIVE if floor else job_turn
    assert walk.peek() is None
    walk.finish()
    assert len(queue) == 0


def test_walk_removes_nothing_before_it_is_finished() -> None:
    queue = PoolQueue(0)
    requests = [Request(n, "", "m", place=n) for n in range(1, 6)]
    for request in requests:
        queue.push(request)
    walk = queue.walk(Strict(), 0)
    walk.skip(requests[0])
    head = walk.peek()
    assert head is requests[1]
    walk.take(head)
    assert len(queue) == 5
    walk.finish()
    assert list(queue) == [requests[0], *requests[2:]]


def test_walk_passes_over_those_whose_deadline_has_come() -> None:
    queue = PoolQueue(0)
    late, live = Request(1, "", "m", place=1, deadline=5), Request(2, "", "m", place=2)
    queue.push(late)
    queue.push(live)
    walk = queue.walk(Strict(), 5)
    assert walk.peek() is live
    assert walk.expired == [late]


def test_returned_requests_stand_at_their_old_places() -> None:
    band = Band()
    requests = {n: Request(n, "", "m", place=n) for n in range(1, 7)}
    for n in (2, 4, 6):
        band.push(requests[n])
    for n in (5, 1, 3):
        band.push_back(requests[n])
    assert [r.place for r in band] == [1, 2, 3, 4, 5, 6]
    assert band.head() is requests[1]
    assert band.remove(requests[3])
    assert not band.remove(requests[3])
    assert [r.place for r in band] == [1, 2, 4, 5, 6]


def test_newcomer_is_told_how_many_go_before_it() -> None:
    queue = PoolQueue(8)
    for rid, (priority, cls) in enumerate(
        [(10, RequestClass.INTERACTIVE), (5, RequestClass.INTERACTIVE), (9, RequestClass.JOB)], 1
    ):
        queue.push(Request(rid, "", "m", priority, request_class=cls, place=rid))
    assert queue.ahead_of(Request(9, "", "m", 7)) == 1
    assert queue.ahead_of(Request(9, "", "m", 5)) == 2
    assert queue.ahead_of(Request(9, "", "m", 9, request_class=RequestClass.JOB)) == 3
