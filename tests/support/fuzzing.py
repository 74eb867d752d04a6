"""Hostile bytes for a server process over one connection each, and the rules that hold whatever they are."""

import asyncio
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import httpx
import numpy as np
from hypothesis import HealthCheck, settings

from tests.support.attacks.link import HOST
from tests.support.floods import Served, has_recovered
from tests.support.live import NO_TLS, WAIT_SECONDS

UNTIMED = settings(database=None, suppress_health_check=list(HealthCheck))
FEW = settings(UNTIMED, max_examples=40, derandomize=True)
MANY = settings(UNTIMED, max_examples=500)
# A server that has not answered by then waits for more.
QUIET_SECONDS = 0.05
PIECE_SECONDS = 0.01
# Bound of the 99th percentile: more than a request takes on a slow machine, and less than the server's own limits.
PROBE_P99_SECONDS = 5.0
CHUNK_BYTES = 1 << 16
# Errors of the server. gRPC's own lines about a client's frames have another format.
ERROR = re.compile(rb'"level": "(error|critical)"|^Traceback|outcome": "internal"')


class Fuzzed:
    """A server under test: sends bytes to it, and probes it during and after each exchange."""

    def __init__(self, served: Served, probe: httpx.Client) -> None:
        self._served = served
        self._probe = probe
        self._log_bytes = 0
        self._probe_seconds: list[float] = []

    def exchange(self, pieces: Sequence[bytes]) -> bytes:
        """Sends bytes over a new connection, with a pause between pieces, probes the server, and returns the answer."""
        answer = b""
        with self._connect() as connection, suppress(OSError):
            for number, piece in enumerate(pieces):
                if number:
                    time.sleep(PIECE_SECONDS)
                connection.sendall(piece)
            self._ask()
            connection.settimeout(QUIET_SECONDS)
            while data := connection.recv(CHUNK_BYTES):
                answer += data
        return answer

    def check(self) -> None:
        """Raises AssertionError unless another client gets its answer, and the server has logged no error since."""
        self._ask()
        with self._served.log.open("rb") as log:
            log.seek(self._log_bytes)
            lines = log.readlines()
            self._log_bytes = log.tell()
        if errors := [line.decode() for line in lines if ERROR.search(line)]:
            raise AssertionError("\n".join(errors))

    def check_latency(self) -> None:
        """Raises AssertionError if other clients waited too long, during or after an exchange."""
        p99_seconds = float(np.percentile(self._probe_seconds, 99, method="lower"))
        if p99_seconds > PROBE_P99_SECONDS:
            longest = [round(seconds, 3) for seconds in sorted(self._probe_seconds)[-10:]]
            raise AssertionError(f"p99 of {len(self._probe_seconds)} probes: {p99_seconds:.3f} s; longest: {longest}")

    def _ask(self) -> None:
        begun_seconds = time.monotonic()
        if self._probe.get("/readyz").status_code != httpx.codes.OK:
            raise AssertionError("the server is not ready")
        self._probe_seconds.append(time.monotonic() - begun_seconds)

    @contextmanager
    def _connect(self) -> Iterator[socket.socket]:
        context = self._served.security.ssl_context()
        with socket.create_connection((HOST, self._served.ports[0]), WAIT_SECONDS) as plain:
            if context is None:
                yield plain
                return
            with context.wrap_socket(plain, server_hostname=HOST) as connection:
                yield connection


@contextmanager
def fuzzing(served: Served) -> Iterator[Fuzzed]:
    """Yields the server; then raises AssertionError if clients waited long, or memory or descriptors are not back."""
    verify = served.security.ssl_context() or NO_TLS
    with httpx.Client(base_url=served.targets.rest, verify=verify, timeout=WAIT_SECONDS, trust_env=False) as probe:
        fuzzed = Fuzzed(served, probe)
        fuzzed.check()
        before = served.usage()
        yield fuzzed
        fuzzed.check_latency()
    after = asyncio.run(served.settle(before))
    if not has_recovered(before, after):
        raise AssertionError(f"{before}, {after}")
