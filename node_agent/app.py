"""How do the parts of an agent come together, and in which order do they come apart?

Up: engines are built (not started), the core and its driver are made, then everything starts at
once: engines warm up while the session is already there and reports STARTING. Down: the drain comes
first (the core decides when it is over), then the session closes, engines stop, spans are flushed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping

from batchyard.v1 import node_service_pb2 as node
from node_agent.config import AgentConfig, default_node_id
from node_agent.config_sources import LoadedConfig
from node_agent.core import Agent, Limits
from node_agent.core import commands as cmd
from node_agent.core import events as ev
from node_agent.driver import Driver
from node_agent.engine_care import EngineCare
from node_agent.engines.interface import Engine
from node_agent.hardware import HardwareProbe, HostProbe
from node_agent.hardware_monitor import HardwareMonitor
from node_agent.models import Models
from node_agent.nvml import open_nvml
from node_agent.own_id import OwnId, claim, visible_gpus
from node_agent.rpc import convert, report
from node_agent.rpc.commands import Commands
from node_agent.rpc.dial import Dialer, DialError
from node_agent.rpc.link import Backoff, Link
from node_agent.rpc.outbox import Outbox
from node_agent.rpc.session import Session, SessionEnd
from node_agent.rpc.settings import FEATURES, PROTOCOL_VERSION
from node_agent.telemetry.running import Telemetry
from service_kit.version import package_version

log = logging.getLogger("node_agent.app")

EXIT_OK, EXIT_FAILURE, EXIT_USAGE, EXIT_ID_IN_USE = 0, 1, 2, 3
ENGINE_STOP_S = 2.0
TELL_S = 3.0  # for a session in which to say that no engine can serve

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class App:
    """One agent, from start to exit."""

    def __init__(
        self,
        loaded: LoadedConfig,
        engines: Mapping[str, Engine],
        *,
        environ: Mapping[str, str],
        make_probe: Callable[[], HardwareProbe] | None = None,
        say: Callable[[str], None] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Made on a running loop. `say` gets the lines for people, by default standard output.

        Raises:
            DialError: the files for reaching the scheduler cannot be used.
        """
        config = loaded.config
        self._config = config
        self._hostname = socket.gethostname()
        self._dialer = Dialer(config.scheduler)
        self._own_id = self._make_id(loaded, environ)
        self.node_id = self._own_id.node_id
        if config.node_id not in ("", self.node_id):
            raise DialError(
                f"node_id is {config.node_id!r}, and the certificate is of node {self.node_id!r}: "
                "leave node_id out, or take the node's own certificate"
            )
        self._boot_id = os.urandom(16).hex()
        self._say = say or _print
        self._cares = {name: EngineCare(name, engine) for name, engine in engines.items()}
        descriptors = {name: care.descriptor for name, care in self._cares.items()}
        self._telemetry = Telemetry(self.node_id, self._boot_id, descriptors, environ=environ)
        self.core = Agent([care.spec for care in self._cares.values()], limits)
        outbox = Outbox(self.core.outputs)
        self.driver = Driver(self.core, self._cares, outbox, self._telemetry.tracer)
        self._loop = asyncio.get_running_loop()
        self._hardware = HardwareMonitor(
            make_probe or (lambda: HostProbe(open_nvml())),
            self._on_gpus,
            places=lambda: {name: care.place for name, care in self._cares.items()},
        )
        outbox.make_descriptor = self._descriptor
        outbox.make_report = self._report
        self._models = Models(
            self._cares,
            self.driver.post,
            load_timeout_s=config.models.load_timeout,
            unload_grace_s=config.models.unload_grace,
        )
        self.driver.on_model_drained = self._models.on_drained
        self._commands = Commands(self.driver, self._models, config.log.level)
        self._signals = 0
        self._session_up = asyncio.Event()  # one was, at least

    def _make_id(self, loaded: LoadedConfig, environ: Mapping[str, str]) -> OwnId:
        """The id that was given, else one that is free here."""
        config = loaded.config
        given = self._dialer.node_id or config.node_id
        if given:
            return OwnId(given, None)
        path, visible = str(loaded.path or ""), visible_gpus(environ)
        return claim(default_node_id(config, self._hostname, path, visible), environ)

    async def run(self) -> int:
        """Work until the drain is over or the scheduler sends the agent away; the exit code."""
        self._watch_signals()
        try:
            await self._telemetry.start(self._config.metrics, self.core, self._report)
        except OSError as fault:
            text = "%s cannot be had for metrics (%s): choose another metrics.listen"
            fields = {"event": "metrics_refused", "address": self._config.metrics.listen}
            log.error(text, self._config.metrics.listen, fault.strerror, extra=fields)
            return EXIT_FAILURE
        self._hardware.start()
        starts = [
            asyncio.create_task(care.start(self.driver), name=f"start {name}")
            for name, care in self._cares.items()
        ]
        link = asyncio.create_task(self._link().run(), name="link")
        exit_ = asyncio.create_task(self.driver.exit.wait(), name="exit")
        starting = asyncio.create_task(self._all_fail(starts), name="engines start")
        try:
            return await self._first_end(link, exit_, starting)
        finally:
            await self._shut_down([exit_, starting, *starts, link])

    async def _first_end(
        self,
        link: asyncio.Task[SessionEnd],
        exit_: asyncio.Task[bool],
        starting: asyncio.Task[bool],
    ) -> int:
        waiting: set[asyncio.Task[SessionEnd] | asyncio.Task[bool]] = {link, exit_, starting}
        while True:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if exit_ in done:
                log.info("drained", extra={"event": "node_drained", "node_id": self.node_id})
                return EXIT_OK
            if link in done:
                return self._sent_away(link.result())
            waiting -= done
            if starting.result():
                self._drain(0.0, f"no engine can serve: {self._start_errors()}")
                return EXIT_FAILURE

    async def _all_fail(self, starts: list[asyncio.Task[None]]) -> bool:
        """Whether no engine has started; if so, after a session came up in which to say why."""
        await asyncio.gather(*starts)
        if any(care.started for care in self._cares.values()):
            return False
        log.error("no engine can serve", extra={"event": "no_engine"})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._session_up.wait(), TELL_S)
        return True

    def _start_errors(self) -> str:
        """Why engines did not start, in their own words."""
        told = {name: care.start_error for name, care in self._cares.items() if care.start_error}
        if len(self._cares) == 1:
            return next(iter(told.values()), "")
        return "; ".join(f"{name}: {why}" for name, why in told.items())

    def _sent_away(self, end: SessionEnd) -> int:
        fields = {"event": "session_ended", "node_id": self.node_id, "reason": end.reason}
        if end.reason == "NODE_ID_IN_USE":
            text = (
                "the node id %r is in use by another live agent (%s); "
                "give this one its own: --node-id ID, or node_id in agent.yaml"
            )
            log.error(text, self.node_id, end.why, extra=fields)
            return EXIT_ID_IN_USE
        log.info("%s", end.why, extra=fields)
        return EXIT_FAILURE if end.reason else EXIT_OK

    async def _shut_down(self, tasks: list[asyncio.Task[object]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._models.stop()
        await asyncio.gather(*(care.stop(ENGINE_STOP_S) for care in self._cares.values()))
        self.driver.stop()
        self._hardware.stop()
        await self._telemetry.stop()
        self._own_id.release()
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    # Sessions.

    def _link(self) -> Link:
        config = self._config
        backoff = Backoff(
            first_s=config.reconnect.first, longest_s=config.reconnect.longest, seed=self._boot_id
        )
        return Link(
            address=config.scheduler.address,
            redirects=config.scheduler.redirects,
            backoff=backoff,
            run_session=self._run_session,
        )

    async def _run_session(self, address: str) -> SessionEnd:
        session = Session(
            address=address,
            driver=self.driver,
            make_hello=self._hello,
            on_command=self._commands.run,
            on_up=lambda welcome: self._on_up(address, welcome),
            welcome_timeout_s=self._config.reconnect.welcome_timeout,
            dialer=self._dialer,
        )
        return await session.run()

    def _hello(self, back: cmd.SendHello) -> node.Hello:
        return node.Hello(
            node_id=self.node_id,
            boot_id=self._boot_id,
            agent_version=package_version(),
            protocol_version=PROTOCOL_VERSION,
            features=FEATURES,
            descriptor=self._descriptor(),
            report=self._report(),
            cluster_id=back.cluster_id,
            highest_term=back.highest_term,
            running_items=convert.running_items(back.items),
        )

    def _descriptor(self) -> node.NodeDescriptor:
        return report.descriptor(
            self._config, self._hostname, self.core, self._cares, self._hardware
        )

    def _on_gpus(self) -> None:
        """Called in the hardware thread."""
        try:
            self._loop.call_soon_threadsafe(self.driver.outbox.need_descriptor)
        except RuntimeError:  # the loop is closed: the agent is gone
            return

    def _report(self) -> node.NodeReport:
        return report.report(self.core, self._cares, self._hardware.sample)

    def _on_up(self, address: str, welcome: node.Welcome) -> None:
        self._session_up.set()
        fields = {
            "event": "session_up",
            "node_id": self.node_id,
            "session_epoch": welcome.session_epoch,
            "address": address,
            "term": welcome.term,
            "cluster_id": welcome.cluster_id,
        }
        log.info("session is up", extra=fields)
        engines = ", ".join(
            f"{name} ({care.descriptor.kind}, {care.spec.slots} slots)"
            for name, care in self._cares.items()
        )
        self._say(f"batchyard agent {self.node_id} is up: scheduler {address}, engines {engines}")

    # Signals.

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.on_signal, number)

    def on_signal(self, number: signal.Signals) -> None:
        """The first signal drains, any later one ends the drain now."""
        self._signals += 1
        self._drain(self._config.drain_grace if self._signals == 1 else 0.0, number.name)

    def on_parent_gone(self) -> None:
        """Nobody is left to look after this process: go, now."""
        self._drain(0.0, "parent gone")

    def _drain(self, grace_s: float, reason: str) -> None:
        fields = {"event": "drain", "reason": reason, "grace_ms": int(grace_s * 1000)}
        log.info("draining", extra=fields)
        grace_ns = int(grace_s * 1e9)
        self.driver.post(
            ev.DrainRequested(grace_ns=grace_ns, own=True, terminate=True, reason=reason)
        )


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def log_origins(loaded: LoadedConfig, config: AgentConfig) -> None:
    """Say where each value that is not a default came from."""
    for key, source in loaded.origins.items():
        fields = {"event": "config_value", "source": source}
        log.debug("%s is set", key, extra=fields)
    fields = {"event": "config_loaded", "source": str(loaded.path or "no file")}
    log.info("version %d of the configuration is loaded", config.version, extra=fields)
