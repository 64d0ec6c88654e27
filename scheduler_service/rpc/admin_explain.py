"""How is ExplainRequest answered? Finds the request for the asker, and pages its decisions."""

from __future__ import annotations

from batchyard.v1 import admin_service_pb2 as pb
from scheduler_service.clock import Clock
from scheduler_service.core.state import State
from scheduler_service.eventlog import EventLog
from scheduler_service.report.explain import Explainer, is_incomplete
from scheduler_service.report.requests import summary
from scheduler_service.report.texts import language_of
from scheduler_service.rpc import admin_filters as filters
from scheduler_service.rpc import paging


class AdminExplain:
    """Answers."""

    def __init__(self, clock: Clock, eventlog: EventLog) -> None:
        self._clock = clock
        self._explainer = Explainer(clock, eventlog)

    def answer(self, state: State, request: pb.ExplainRequestRequest) -> pb.ExplainRequestResponse:
        """One page of it.

        Raises:
            Refused: there is no such request, or the page is not one of ours.
        """
        size, after = paging.page_size(request.page_size), paging.cursor(request)
        found = filters.find_request(state, request.request_id, request.tenant)
        language = language_of(request.language)
        made = self._explainer.decisions(state, found, language)
        rows = list(enumerate(made))[int(after) + 1 if after else 0 :]
        shown, token = paging.page(request, rows, size, lambda row: str(row[0]))
        return pb.ExplainRequestResponse(
            request=summary(found, self._clock.now()),
            wait=self._explainer.wait(state, found, language),
            decisions=[self._explainer.write(decided) for _, decided in shown],
            incomplete=is_incomplete(state, found),
            next_page_token=token,
        )
