"""Models on demand for a server: those of pairs of languages, installed in the cache of this user."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

import structlog

from dragoman.hub.catalog import find_installed, list_catalog
from dragoman.hub.firefox import read_kept
from dragoman.hub.names import HubError, LanguagePair, parse_name
from dragoman.hub.store import Store
from dragoman.serve.source import Progress

ALL = "all"
# Between two looks whether another fetch has ended.
WAIT_SECONDS = 0.2
# Next to busy threads, a fetch gets a tenth of a CPU.
NICENESS = 10

log = structlog.get_logger("dragoman")


class CatalogSource:
    """The models that the catalog chooses for pairs of languages. Limits count all processes with the same cache.

    Attributes:
        pairs: source and target of each model by name.
    """

    def __init__(self, wanted: str, max_bytes: int, max_fetches: int) -> None:
        """Reads the catalog, without the network; raises HubError if a name is no pair, or the cache is unusable.

        Args:
            wanted: pairs, as in en-de,fr-en; `all` means those of the catalog.
            max_bytes: limit of all installed models and current fetches together.
        """
        self._store = Store.of_user()
        self._max_bytes = max_bytes
        self._max_fetches = max_fetches
        self._stopped = threading.Event()
        self._running = set[subprocess.Popen[str]]()
        self.pairs: dict[str, tuple[str, str]] = {}
        for name in wanted.split(","):
            found = list_catalog(read_kept(self._store), None) if name == ALL else (name,)
            self.pairs |= {str(pair): (pair.source, pair.target) for pair in map(_pair, found)}

    def find(self, name: str) -> Path | None:
        """Returns the bundle of an installed pair."""
        found = find_installed(self._store, _pair(name))
        return None if found is None else self._store.bundle(found.key)

    def fetch(self, name: str) -> Path:
        """Installs a pair and returns its bundle; raises HubError if that fails or the disk has no room for it."""
        with self._turn():
            if (installed := self.find(name)) is not None:  # Another process was first.
                return installed
            if (used_bytes := self._store.used_bytes()) >= self._max_bytes:
                problem = f"installed models take {used_bytes:,} bytes, --on-demand-max-bytes is {self._max_bytes:,}"
                raise HubError(f"{name}: {problem}")
            problem = self._install(name)
        if (bundle := self.find(name)) is None:
            raise HubError(problem)
        return bundle

    def progress(self) -> Mapping[str, Progress]:
        """Returns the pairs that are fetched now, also by other processes."""
        return self._store.fetches()

    def stop(self) -> None:
        """Ends the fetches of this process."""
        self._stopped.set()
        for process in tuple(self._running):
            process.terminate()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Waits until fewer models are fetched than may be; raises HubError after `stop`."""
        for number in cycle(range(self._max_fetches)):
            if self._stopped.is_set():
                raise HubError("the server stops")
            with self._store.try_lock(f"fetch {number}") as is_locked:
                if is_locked:
                    yield
                    return
            self._stopped.wait(WAIT_SECONDS)

    def _install(self, name: str) -> str:
        """Installs a pair in another process, logs its lines, and returns the last one, or the signal that ended it."""
        line = "the process of the installation has ended"
        command = [sys.executable, "-P", "-m", "dragoman.hub.fetch", name, str(self._max_bytes)]
        with subprocess.Popen(  # noqa: S603 - this interpreter, and a name that is a pair of languages
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            process_group=0,  # in a session of its own, some kernels would give it as much time as the server
        ) as process:
            _put_behind(process.pid)
            self._running.add(process)
            if self._stopped.is_set():
                process.terminate()
            for line in process.stdout or ():
                log.info("fetch", model=name, line=line.rstrip())
        self._running.discard(process)
        if process.returncode < 0:
            return f"{name}: signal {-process.returncode} ended the installation, perhaps for lack of memory"
        return line.rstrip()


def _pair(name: str) -> LanguagePair:
    with suppress(HubError):
        if isinstance(pair := parse_name(name), LanguagePair):
            return pair
    raise HubError(f"--on-demand: {name}: expected {ALL}, or pairs of languages as en-de,fr-en")


def _put_behind(process_id: int) -> None:
    """Gives half of the CPUs and a low priority to a process that has just started, behind the server and its engines.

    The process cannot do this for itself, because libraries start threads when they are imported.
    """
    with suppress(OSError):  # it has ended
        os.setpriority(os.PRIO_PROCESS, process_id, max(NICENESS, os.getpriority(os.PRIO_PROCESS, process_id)))
        cpus = sorted(os.sched_getaffinity(process_id))
        os.sched_setaffinity(process_id, cpus[: len(cpus) // 2 or 1])
