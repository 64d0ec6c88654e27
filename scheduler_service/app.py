"""How do the parts of the scheduler come together, and in which order do they come apart?

The composition root: the only file that names concrete classes together. Down: health says
NOT_SERVING first, new work is refused with a hint, what runs gets its grace, the rest ends with
UNAVAILABLE (what callers can come back to goes on, for the next scheduler); then agents are told to
come back, servers stop, spans are flushed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Container
from dataclasses import dataclass

from scheduler_service import http, recorded
from scheduler_service.actuators.command import CommandActuator
from scheduler_service.actuators.process import ProcessActuator
from scheduler_service.clock import Clock
from scheduler_service.config import SchedulerConfig
from scheduler_service.core import Scheduler, condition, events
from scheduler_service.core.commands import CloseSession, FinishRequest, RequestScale
from scheduler_service.core.outcomes import Outcome, Reason
from scheduler_service.dashboard.feed import Feed
from scheduler_service.driver import Driver
from scheduler_service.effects import Effects
from scheduler_service.identity import Identity
from scheduler_service.jobs.keeper import JobKeeper
from scheduler_service.jobs.making import make_keeper
from scheduler_service.known_nodes import KnownNodes
from scheduler_service.observers import Observers
from scheduler_service.quarantine import Quarantine
from scheduler_service.rpc import admin, node
from scheduler_service.rpc.book import Book
from scheduler_service.rpc.convert import Converter
from scheduler_service.rpc.handover import Handover
from scheduler_service.rpc.intake import Intake
from scheduler_service.rpc.jobs import JobPort
from scheduler_service.rpc.node_settings import Identity as SessionIdentity
from scheduler_service.rpc.node_settings import NodePortSettings
from scheduler_service.rpc.results import ResultBuilder
from scheduler_service.rpc.scheduler import SERVICE, SchedulerPort
from scheduler_service.rpc.scheduler import Identity as PublicIdentity
from scheduler_service.rpc.validate import Limits
from scheduler_service.security.guard import Guard
from scheduler_service.security.news import Change, GrantsNews
from scheduler_service.servers import Servers, Service
from service_kit.addresses import joined

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where it answers."""

    client: str
    node: str
    admin: str
    http: str


class App:
    """One scheduler, from start to exit. Made on a running loop."""

    def __init__(self, config: SchedulerConfig, identity: Identity, version: str) -> None:
        self._config = config
        self._clock = Clock()
        self._guard = Guard(config, self._clock)
        quotas = self._guard.quotas if self._guard.quotas.are_any else None
        self._quotas = quotas
        self._instance_id = os.urandom(16).hex()
        most = config.limits.max_message_bytes
        self._results = ResultBuilder(self._clock, max_message_bytes=most)
        self._scaler: ProcessActuator | CommandActuator | None = None
        self._effects = Effects(self._results, self._scale)
        self._recording = recorded.start(config)
        known = KnownNodes(config.state_dir) if config.state_dir is not None else None
        self.driver = Driver(
            recorded.core_of(
                config,
                identity.term,
                self._recording,
                nodes_before=known.before if known is not None else frozenset(),
            ),
            clock=self._clock,
            execute=self._effects.execute,
            on_fault=self._start_anew,
        )
        if known is not None:
            self.driver.observe(known)
        self._quarantine = Quarantine(
            config.state_dir, self._clock, keep_for=config.failover.poison_memory
        )
        self._effects.remember = self._quarantine.remember
        self._book = Book(self.driver, self._clock, quotas=quotas, on_poisoned=self._quarantine.add)
        if quotas is not None:
            self.driver.observe(quotas.observe)
        self._effects.book = self._book
        self._identity = identity
        self._version = version
        self._servers = Servers(self._guard.gate, config.abuse)
        self._observers = Observers(
            self.driver,
            self._clock,
            config.report,
            term=identity.term,
            instance_id=self._instance_id,
            environ=os.environ,
            log_requests=config.log.requests,
            edge=lambda: [*self._guard.families(), self._book.family()],
        )
        self._follow_grants()
        converter = self._converter = self._make_converter()
        intake = self._intake = self._make_intake(converter)
        self._jobs = self._make_jobs(converter, intake)
        self._client_port = SchedulerPort(
            intake=intake,
            identity=PublicIdentity(
                version=version,
                instance_id=self._instance_id,
                cluster_id=identity.cluster_id,
                term=identity.term,
            ),
            state=lambda: self.driver.scheduler.state,
            jobs=self._make_job_port(converter),
            begin_call=self._observers.begin_call,
        )
        self._node_port = self._make_node_port()
        self._http: http.HttpPort | None = None
        self._admin_port: admin.AdminPort | None = None
        self._draining = False

    def _follow_grants(self) -> None:
        """Who gets access, and who loses it, is an event as what operators do here is."""
        eventlog, clock = self._observers.eventlog, self._clock

        def tell(change: Change) -> None:
            eventlog.tell(change.kind, clock.now(), principal=change.by, data=change.data())

        news = GrantsNews(self._config.state_dir, tell)
        self._guard.access.on_read.append(news.look)

    def _limits(self) -> Limits:
        return Limits(**self._config.limits.values())

    def _make_job_port(self, converter: Converter) -> JobPort | None:
        """None: there are no jobs."""
        if self._jobs is None:
            return None
        return JobPort(self._jobs, converter, self._observers.begin_call)

    def _make_converter(self) -> Converter:
        config = self._config
        return Converter(
            limits=self._limits(),
            task_types=config.task_defaults(),
            aliases=config.aliases(),
            max_attempts=config.failover.max_attempts,
        )

    def _make_intake(self, converter: Converter) -> Intake:
        config = self._config
        return Intake(
            book=self._book,
            converter=converter,
            clock=self._clock,
            limits=self._limits(),
            on_entry=self._observers.on_entry,
            quotas=self._quotas,
            refusals=self._guard.refusals,
            quarantine=self._quarantine,
            idle_stream=config.abuse.idle_stream,
        )

    def _make_node_port(self) -> node.NodePort:
        health = self._config.health
        return node.NodePort(
            driver_post=self.driver.post,
            relay=lambda: self.driver.scheduler.relay,
            sessions=self._effects.sessions,
            settings=NodePortSettings(
                heartbeat_interval=health.heartbeat_interval,
                session_timeout=health.session_timeout,
                resume_window=health.resume_window,
                report_interval=health.report_interval,
                coalesce=health.coalesce,
                max_message_bytes=self._config.limits.max_message_bytes,
                cookie_key=self._identity.cookie_key,
            ),
            identity=SessionIdentity(self._identity.cluster_id, self._identity.term),
            clock=self._clock,
            tracer=self._observers.tracer,
            version=self._version,
            join=self._guard.access.join,
            why_not_join=self._guard.access.why_not_join,
            in_flight=self._in_flight,
            handover=self._make_handover(),
            refusals=self._guard.refusals,
        )

    def _make_handover(self) -> Handover | None:
        """None: no scheduler was before this one, or it left no trace."""
        if self._config.state_dir is None or self._identity.term == 1:
            return None
        return Handover(
            self._book,
            self._clock,
            term=self._identity.term,
            key=self._identity.cookie_key,
            next_rid=self._intake.next_number,
            item_of_job=self._jobs.feeder.adopt if self._jobs is not None else None,
        )

    def _make_admin_port(self) -> admin.AdminPort:
        return admin.AdminPort(
            driver=self.driver,
            clock=self._clock,
            eventlog=self._observers.eventlog,
            statistics=self._observers.statistics,
            sessions=self._node_port,
            version=self._version,
            config=self._config,
            on_policy=self._retune,
        )

    def _retune(self, config: SchedulerConfig) -> None:
        """Operators changed what requests get where they do not say."""
        self._converter.retune(config.task_defaults(), config.failover.max_attempts)

    def _make_jobs(self, converter: Converter, intake: Intake) -> JobKeeper | None:
        """None: there is no folder to keep them in."""
        if self._config.state_dir is None:
            return None
        keeper = make_keeper(
            self._config.state_dir,
            self._config.jobs,
            driver=self.driver,
            clock=self._clock,
            converter=converter,
            next_rid=intake.next_number,
            quotas=self._quotas,
            quarantine=self._quarantine,
            on_entry=self._observers.on_entry,
            note=self._observers.eventlog.note,
        )
        intake.max_requests_per_job = keeper.limits.max_items
        self._book.on_other = keeper.feeder.finish
        self._effects.after_results = keeper.landing.after
        return keeper

    async def start(self) -> Addresses:
        """Serve.

        Raises:
            BindError: a port cannot be had.
        """
        listen = self._config.listen
        self._admin_port = self._make_admin_port()
        if self._jobs is not None:
            self._admin_port.reports.backlog = self._jobs.waiting_items
        callers = self._guard.credentials(agents=False)
        agents = self._guard.credentials(agents=True)
        await self._servers.start(
            listen.host,
            [
                Service(SERVICE, self._client_port.handlers(), listen.client_port, callers),
                Service(node.SERVICE, self._node_port.handlers(), listen.node_port, agents),
                Service(admin.SERVICE, self._admin_port.handlers(), listen.admin_port, callers),
            ],
            self._config.limits.max_message_bytes,
        )
        self._guard.start()
        self._observers.start(self._admin_port.reports)
        self._http = await http.start_http(
            listen.host,
            listen.http_port,
            ready=self._why_not_ready,
            metrics=self._observers.metrics,
            feed=Feed(self._admin_port, self._clock, jaeger_url=self._config.http.jaeger_url),
            gate=self._guard.http_gate,
            abuse=self._config.abuse,
            tls=self._guard.http_context(),
        )
        self._start_scaler()
        if self._jobs is not None:
            await self._jobs.start()
        self.driver.wake()
        ports = self._servers.ports
        return Addresses(
            client=joined(listen.host, ports[SERVICE]),
            node=joined(listen.host, ports[node.SERVICE]),
            admin=joined(listen.host, ports[admin.SERVICE]),
            http=joined(listen.host, self._http.port),
        )

    def _in_flight(self, node_id: str, epoch: int) -> Container[int]:
        """Dispatch ids that the node holds in that session."""
        found = self.driver.scheduler.state.nodes.get(node_id)
        return found.in_flight if found is not None and found.epoch == epoch else ()

    def _why_not_ready(self) -> str:
        """Empty: it takes requests."""
        if self._draining:
            return "stopping"
        if self._config.http.ready_needs_node:
            state = self.driver.scheduler.state
            if not any(pool.live for pool in state.pools.values()):
                return "no live node"
        return ""

    def _scale(self, command: RequestScale) -> None:
        if self._scaler is not None:
            self._scaler.scale(command)

    def _start_scaler(self) -> None:
        scale = self._config.autoscale
        if not scale.enabled:
            return
        if scale.actuator == "command":
            self._scaler = CommandActuator(scale.command, on_failed=self._scale_failed)
        elif scale.actuator == "process":
            address = joined(self._config.listen.host, self._servers.ports[node.SERVICE])
            self._scaler = ProcessActuator(
                ["-c", str(scale.process.agent_config), "--scheduler", address],
                on_failed=self._scale_failed,
                joined=lambda node_id: node_id in self.driver.scheduler.state.nodes,
                failed_start=self._failed_start,
            )

    def _failed_start(self, node_id: str) -> bool:
        node = self.driver.scheduler.state.nodes.get(node_id)
        return node is not None and not node.alive and condition.of_node(node) == condition.DOWN

    def _scale_failed(self, pool: str, message: str) -> None:
        log.warning("scaling failed: %s", message, extra={"event": "scale_failed", "pool": pool})
        self.driver.post(events.ScaleFailed(pool, message))

    def _start_anew(self, fault: BaseException) -> Scheduler:
        """The core's state cannot be trusted: end what is open, and go on with a fresh one."""
        old = self.driver.scheduler
        for (node_id, epoch), session in list(self._effects.sessions.items()):
            session.close(
                CloseSession(
                    node_id, epoch, Reason.INTERNAL, "the scheduler lost its state", reconnect=True
                )
            )
        for entry in list(self._book.entries.values()):
            request = entry.request
            request.finished_at = self._clock.now()
            self._effects.execute(
                [
                    FinishRequest(
                        request,
                        Outcome.FAILED,
                        Reason.INTERNAL,
                        f"a fault of the scheduler itself ({type(fault).__name__}); it is logged",
                    )
                ]
            )
        self._observers.core_lost()
        if self._jobs is not None:
            self._jobs.feeder.core_lost()
        return old.successor()

    async def stop(self) -> None:
        """Drain and stop; bounded by the configured grace and a few seconds more."""
        grace_s = self._config.shutdown_grace / 1e9
        self._draining = True
        await self._servers.set_serving(False)
        if self._jobs is not None:
            await self._jobs.stop_feeding()
        self.driver.post(events.SchedulerDraining("it was asked to stop"))
        self._client_port.go_away()
        await self._open_calls_end(grace_s)
        for entry in list(self._book.entries.values()):
            if self._config.state_dir is None or not self._book.hand_over(entry):
                self._book.cancel(entry, Reason.SCHEDULER_DRAINING, "this scheduler has stopped")
        await self._open_calls_end(1.0)
        if self._scaler is not None:
            await self._scaler.close()
        if self._jobs is not None:
            self._jobs.feeder.let_go()  # agents hand them to the next scheduler
        await self._node_port.close(
            Reason.SCHEDULER_DRAINING, "this scheduler has stopped", reconnect=True
        )
        if self._admin_port is not None:
            self._admin_port.close()
        await self._servers.stop(0.5)
        if self._http is not None:
            await self._http.stop()
        self._guard.stop()
        self.driver.close()
        if self._jobs is not None:
            await self._jobs.close()
        self._quarantine.close()
        await self._observers.stop()
        if self._recording is not None:
            self._recording.close()
        self._identity.close()

    async def _open_calls_end(self, within_s: float) -> None:
        """Wait until no call is open, or that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._book.idle.wait()
