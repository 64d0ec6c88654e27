"""What does the dashboard show? The report, as the document that `batchyard report -o json` prints.

One document is built for all viewers of a moment who may see the same tenants, so a page that many
keep open costs what one costs. Nothing here changes anything.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Final, Protocol

from batchyard.cli.views.explain import explanation_document
from batchyard.cli.views.plain import Document
from batchyard.cli.views.report import report_document
from batchyard.v1 import admin_service_pb2 as pb
from batchyard.v1 import report_pb2
from scheduler_service.clock import Clock
from scheduler_service.core import records
from scheduler_service.core.types import MILLISECOND, SECOND, Instant
from scheduler_service.eventlog import FREQUENT
from scheduler_service.report.build import ReportOptions
from scheduler_service.report.texts import Language
from scheduler_service.security.principals import current

EVENTS: Final = records.PUBLIC - FREQUENT | {records.REJECTED, records.EXPIRED, records.FAILED}
FRESH: Final = 400 * MILLISECOND  # a document younger than this is given again
KEPT_MAX: Final = 64  # documents, by tenants, language and window
WINDOW_MAX: Final = 300 * SECOND


class Reports(Protocol):
    """The admin port, as far as the dashboard needs it."""

    def report(self, options: ReportOptions) -> report_pb2.Report:
        """Without what names tenants that the asker may not see."""

    def explanation(
        self, request_id: str, tenant: str, language: Language
    ) -> pb.ExplainRequestResponse:
        """All decisions of a request, on one page."""


class Feed:
    """Builds documents. All methods are for the loop's thread."""

    def __init__(
        self, reports: Reports, clock: Clock, *, jaeger_url: str, watch_s: float = 1.0
    ) -> None:
        self.watch_s = watch_s
        self.closed = asyncio.Event()
        self._reports = reports
        self._clock = clock
        self._jaeger_url = jaeger_url.rstrip("/")
        self._kept: dict[tuple[object, ...], tuple[Instant, str]] = {}

    def report(self, query: Mapping[str, str]) -> str:
        """The present document as JSON; `lang` and `window_s` are heeded."""
        language: Language = "zh" if query.get("lang") == "zh" else "en"
        asked = query.get("window_s", "")
        window = min(WINDOW_MAX, max(1, int(asked)) * SECOND) if asked.isdigit() else WINDOW_MAX
        key, now = (current().tenants, language, window), self._clock.now()
        made_at, text = self._kept.get(key, (-FRESH, ""))
        if now - made_at >= FRESH:
            text = json.dumps(self._document(language, window), ensure_ascii=False)
            self._kept.pop(key, None)
            self._kept[key] = (now, text)
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        return text

    def _document(self, language: Language, window: int) -> Document:
        options = ReportOptions(window=window, language=language, events=40, event_kinds=EVENTS)
        document = report_document(self._reports.report(options))
        document["jaeger_url"] = self._jaeger_url
        return document

    def explanation(self, request_id: str, query: Mapping[str, str]) -> str:
        """Why a request waits or went as it did, as JSON.

        Raises:
            Refused: there is no such request.
        """
        language: Language = "zh" if query.get("lang") == "zh" else "en"
        found = self._reports.explanation(request_id, query.get("tenant", ""), language)
        return json.dumps(explanation_document(found), ensure_ascii=False)

    async def pause(self) -> bool:
        """Until the next document is due; False: the port is closing."""
        try:
            await asyncio.wait_for(self.closed.wait(), self.watch_s)
        except TimeoutError:
            return True
        return False
