"""Runs the workers of a service: starts them, replaces those that end, hang or retire, and stops them.

Each worker has a number. When one is replaced on purpose, the new one serves before the old one retires. The supervisor
keeps the listening socket of REST, so that no connection is lost while workers come and go.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import structlog

from dragoman.serve.app import configure_logs_and_traces, serve_as_worker
from dragoman.serve.host.process_link import LinkClosedError
from dragoman.serve.host.system import open_standard_descriptors, raise_most_open_files, trim_memory
from dragoman.serve.http.server import ListenError, open_port, reserve_shared_port
from dragoman.serve.observability.log_writer import EXIT_SECONDS, LOG_WRITER
from dragoman.serve.registry.loader import LoadModels
from dragoman.serve.registry.reloader import ReloadReport
from dragoman.serve.sandbox.host import ParserHost
from dragoman.serve.settings import ServeSettings
from dragoman.serve.supervisor.joined_metrics import JoinedMetrics
from dragoman.serve.supervisor.worker_process import WorkerProcess, fork_worker, share_of
from dragoman.serve.worker import WorkerSlot, WorkerState

# Pause before a worker that ended is replaced: the first, doubled with each further end, and the longest.
FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 30.0
# A worker that served this long ended by itself; earlier ends count.
STEADY_SECONDS = 60.0
# How often the supervisor checks whether the event loop of a worker that serves runs. One answer may be late, because
# all processes may have been frozen for a while.
PING_SECONDS = 5.0
MAX_MISSED_PINGS = 2
# Beyond lame duck and drain: time for a worker to close its connections and stop its engines.
CLOSE_SECONDS = 15.0

log = structlog.get_logger("dragoman")


class StartError(Exception):
    """A worker cannot start; the message is its reason."""


def supervise(settings: ServeSettings, load: LoadModels | None = None) -> None:
    """Serves with several processes until a signal; raises SystemExit if the service cannot start."""
    configure_logs_and_traces(settings.model_copy(update={"trace_endpoint": None}))
    raise_most_open_files()
    open_standard_descriptors()

    def work(slot: WorkerSlot) -> int:
        return serve_as_worker(settings, slot, load)

    try:
        asyncio.run(Supervisor(settings, work).run())
    except (ListenError, StartError) as error:
        raise SystemExit(f"dragoman serve: {error}") from error
    finally:
        LOG_WRITER.drain(EXIT_SECONDS)


class Supervisor:
    """The workers and what all of them are requested to do."""

    def __init__(self, settings: ServeSettings, work: Callable[[WorkerSlot], int]) -> None:
        """Opens the ports; `work` runs in each worker. Raises ListenError if a port is taken."""
        self._settings = settings
        self._work = work
        self._count = settings.process_count
        self._http_socket = open_port(settings.host, settings.http_port)
        self._grpc_socket = reserve_shared_port(settings.host, settings.grpc_port)
        self._workers: list[WorkerProcess] = []
        self._by_slot: dict[int, WorkerProcess] = {}
        self._ends = dict.fromkeys(range(self._count), 0)
        self._metrics = JoinedMetrics(self._workers)
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ready = False
        self._was_ready = False
        self._stopping = False
        self._done = asyncio.Event()
        self._failure: str | None = None
        self._parsers = ParserHost()

    async def run(self) -> None:
        """Serves until a signal; raises StartError if a worker ends before all are ready."""
        loop = asyncio.get_running_loop()
        for stop in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(stop, self._stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._begin(self._reload()))
        loop.add_signal_handler(signal.SIGUSR2, lambda: self._begin(self._restart()))
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        self._parsers.watch()
        # Otherwise a collection in a worker would copy the pages that all of them share.
        trim_memory()
        for number in range(self._count):
            self._by_slot[number] = self._start(number)
        self._begin(self._metrics.follow())
        await self._done.wait()
        for task in self._tasks:
            task.cancel()
        self._parsers.close()
        if self._failure is not None:
            raise StartError(self._failure)
        log.info("stopped")

    def _begin(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _start(self, number: int) -> WorkerProcess:
        end, own_end = socket.socketpair()
        slot = WorkerSlot(
            number,
            own_end,
            self._http_socket,
            self._grpc_socket.getsockname()[1],
            self._parsers.calls,
            listens_at_once=not self._was_ready,
        )
        inherited = (self._grpc_socket, self._parsers.own_end, *(item.end for item in self._workers))
        cpus = share_of(number, self._count)
        worker = fork_worker(self._work, slot, end, cpus=cpus, inherited=inherited, answer=self._answer)
        self._workers.append(worker)
        self._begin(worker.link.run())
        self._begin(self._watch(worker))
        return worker

    async def _watch(self, worker: WorkerProcess) -> None:
        """Ends a worker whose event loop stands still: it could neither report its state nor retire."""
        limit_seconds = self._settings.step_timeout_seconds
        missed = 0
        serves = await worker.wait_serving()
        while serves and missed < MAX_MISSED_PINGS:
            await asyncio.sleep(min(PING_SECONDS, limit_seconds))
            try:
                await worker.link.ask("ping", seconds=limit_seconds / MAX_MISSED_PINGS)
                missed = 0
            except LinkClosedError:
                missed += 1
            serves = not worker.link.closed.is_set()
        if serves:
            worker.failure = f"did not answer for {limit_seconds:g} seconds"
            worker.silent = True
            worker.send(signal.SIGKILL)

    async def _answer(self, worker: WorkerProcess, name: str, value: Any) -> Any:
        match name:
            case "state":
                self._note_state(worker, WorkerState(**value))
            case "failure":
                worker.failure = value
            case "metrics":
                self._metrics.update(worker, value)
            case "scrape":
                return await self._metrics.read()
            case "reload":
                return asdict(await self._reload())
        return None

    def _note_state(self, worker: WorkerProcess, state: WorkerState) -> None:
        before = worker.state
        worker.note(state)
        if before.live and not state.live and not worker.replaced and not self._stopping:
            log.error("worker_hangs", worker=worker.number)
            self._begin(self._restart(worker))
        self._refresh_ready()

    def _refresh_ready(self) -> None:
        """Notifies the workers whether all those that listen are ready."""
        listening = [item for item in self._workers if item.state.listening and not item.replaced]
        expected = 1 if self._was_ready else self._count
        ready = len(listening) >= expected and all(listener.state.ready for listener in listening)
        if ready != self._ready:
            self._ready = ready
            for worker in self._workers:
                self._begin(self._tell(worker, "others_ready", ready))
        if ready and not self._was_ready:
            self._was_ready = True
            ports = {"http_port": self._http_socket, "grpc_port": self._grpc_socket}
            facts = {name: port.getsockname()[1] for name, port in ports.items()}
            log.info("ready", **facts, bundle=str(self._settings.bundle), processes=self._count)

    async def _tell(self, worker: WorkerProcess, name: str, value: Any = None) -> None:
        with suppress(LinkClosedError):
            await worker.link.ask(name, value)

    async def _reload(self) -> ReloadReport:
        """Reloads the models of one worker after the other."""
        async with self._lock:
            reports = {}
            for number, worker in sorted(self._by_slot.items()):
                with suppress(LinkClosedError):
                    answer = await worker.link.ask("reload")
                    if answer is not None:
                        reports[number] = ReloadReport(**answer)
            report = join_reports(reports)
            for name in report.removed:
                self._metrics.merged.forget(name)
            return report

    def _is_current(self, worker: WorkerProcess) -> bool:
        return self._was_ready and not self._stopping and self._by_slot[worker.number] is worker

    async def _restart(self, *given: WorkerProcess) -> None:
        """Replaces one worker after the other, or all: each retires when its successor serves."""
        workers = given or tuple(self._by_slot[number] for number in sorted(self._by_slot))
        async with self._lock:
            for old in workers:
                if not self._is_current(old):
                    continue
                successor = self._start(old.number)
                serves = await successor.wait_serving()
                if not self._is_current(old):  # it ended meanwhile and has another successor, or the service stops
                    successor.replaced = True
                    await self._tell(successor, "retire")
                    continue
                if not serves:
                    log.error("restart_failed", worker=old.number, problem=successor.failure)
                    return
                self._by_slot[old.number] = successor
                old.replaced = True
                self._metrics.restarts["hanging" if not old.state.live else "asked"].inc()
                self._refresh_ready()
                await self._tell(old, "retire")
                await old.ended.wait()
            log.info("restarted", workers=[worker.number for worker in workers])

    def _reap(self) -> None:
        """Takes note of every process that has ended; as the first process of a container, also of strangers."""
        while True:
            try:
                process_id, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process_id == 0:
                return
            for worker in tuple(self._workers):
                if worker.process_id == process_id:
                    worker.status = os.waitstatus_to_exitcode(status)
                    self._begin(self._note_end(worker))

    async def _note_end(self, worker: WorkerProcess) -> None:
        # What the worker sent last may still have to be read.
        await worker.link.closed.wait()
        self._workers.remove(worker)
        self._metrics.merged.end(worker.process_id)
        worker.ended.set()
        self._refresh_ready()
        if self._stopping:
            # From now on a connection that nobody would accept is refused.
            self._http_socket.close()
            if not self._workers:
                self._done.set()
        elif self._by_slot[worker.number] is worker:
            log.error("worker_ended", worker=worker.number, status=worker.status, problem=worker.failure)
            if self._was_ready:
                self._begin(self._replace(worker))
                return
            unready = f"a process ended with status {worker.status} before the service was ready"
            self._failure, self._stopping = worker.failure or unready, True
            for item in self._workers:
                item.send(signal.SIGKILL)
            if not self._workers:
                self._done.set()

    async def _replace(self, worker: WorkerProcess) -> None:
        """Starts a worker in the place of one that ended, later each time it ends again."""
        number = worker.number
        steady = worker.served_seconds() >= STEADY_SECONDS
        self._ends[number] = 1 if steady else self._ends[number] + 1
        await asyncio.sleep(min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (self._ends[number] - 1)))
        if not self._stopping and self._by_slot[number] is worker:
            self._metrics.restarts["hanging" if worker.silent else "ended"].inc()
            self._by_slot[number] = self._start(number)

    def _stop(self) -> None:
        """Lets every worker drain and end; the second time, ends them at once."""
        if self._stopping:
            log.warning("stopped_by_second_signal")
            for worker in self._workers:
                worker.send(signal.SIGKILL)
            LOG_WRITER.drain(EXIT_SECONDS)
            os._exit(1)
        self._stopping = True
        for worker in self._workers:
            worker.send(signal.SIGTERM)
        self._begin(self._end_late_workers())
        if not self._workers:
            self._done.set()

    async def _end_late_workers(self) -> None:
        await asyncio.sleep(self._settings.lame_duck_seconds + self._settings.drain_seconds + CLOSE_SECONDS)
        for worker in self._workers:
            log.error("worker_killed", worker=worker.number)
            worker.send(signal.SIGKILL)


NO_PROCESS = "no process serves; reload when the service is ready"


def join_reports(reports: Mapping[int, ReloadReport]) -> ReloadReport:
    """Returns the report of the first process with the failures of all; `reports`: by the number of the process."""
    if not reports:
        return ReloadReport(problem=NO_PROCESS)
    first = next(iter(reports.values()))
    failed: dict[str, str] = {}
    for number, report in reports.items():
        for name, problem in report.failed.items():
            failed.setdefault(name, problem if report is first else f"process {number}: {problem}")
    problems = (report.problem for report in reports.values() if report.problem is not None)
    names = ("loaded", "replaced", "removed", "unchanged")
    succeeded = {name: [item for item in getattr(first, name) if item not in failed] for name in names}
    return ReloadReport(**succeeded, failed=failed, problem=next(problems, None))
