"""`python -m benchmarks.costs.processes BUNDLE`: speed and memory of a service with one process, and with several.

One process gets one CPU, N processes get N. A closed loop of `CALLS` connections per process sends a golden sentence
with each request, over REST. The loop costs a few hundredths of what a request costs the server. The memory is the
proportional set size (Linux) of all processes of the service, where shared memory counts once.
"""

import json
import os
import re
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.host.server_process import HOST, ServerProcess, reserve_ports, server_command

CALLS = 24
WARM_UP_SECONDS = 2.0
SECONDS = 10.0
ROUNDS = 3
_REQUEST = (
    b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
)


def requests(bundle: Path) -> Iterator[bytes]:
    """Yields requests without end."""
    for sentence in cycle(Bundle.open(bundle).golden):
        languages = {"source_language": sentence.source_language, "target_language": sentence.target_language}
        body = json.dumps({"text": sentence.source, **languages}).encode()
        yield _REQUEST % (len(body), body)


def proportional_bytes(process_id: int) -> int:
    """Returns the proportional set size of a process and its children."""
    rollup = Path(f"/proc/{process_id}/smaps_rollup").read_text(encoding="ascii")
    (size,) = re.findall(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text(encoding="ascii")
    return 1024 * int(size) + sum(map(proportional_bytes, map(int, children.split())))


def _is_answer(received: bytes) -> bool:
    """Returns whether an answer is complete; raises AssertionError unless it has status 200."""
    if not received.startswith(b"HTTP/1.1 200"):
        raise AssertionError(f"expected status 200, got {received!r}")
    head, end, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return bool(end) and length is not None and len(body) >= int(length[1])


def answers_per_second(port: int, calls: int, sent: Iterator[bytes]) -> float:
    """Returns the rate of a closed loop."""
    received = defaultdict[socket.socket, bytes](bytes)
    with selectors.DefaultSelector() as selector:
        for _ in range(calls):
            opened = socket.create_connection((HOST, port))
            opened.sendall(next(sent))
            selector.register(opened, selectors.EVENT_READ)
        answers, begins_seconds = 0, time.monotonic() + WARM_UP_SECONDS
        ends_seconds = begins_seconds + SECONDS
        while (now_seconds := time.monotonic()) < ends_seconds:
            for key, _ in selector.select():
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                received[connection] += connection.recv(1 << 16)
                if _is_answer(received[connection]):
                    answers += now_seconds >= begins_seconds
                    received[connection] = b""
                    connection.sendall(next(sent))
        for key in list(selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        return answers / SECONDS


def measure(bundle: Path, processes: int) -> tuple[float, float]:
    """Returns requests per second and mebibytes of a service, with one CPU and one engine for each process."""
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:processes]))
    with ExitStack() as stack:
        http_port, grpc_port = stack.enter_context(reserve_ports(0, 0))
        command = ["taskset", "-c", cpus, *server_command(bundle, http_port, grpc_port), "--processes", str(processes)]
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        server = stack.enter_context(ServerProcess.run(command, http_port, log))
        server.wait_until_ready(60)
        rate = answers_per_second(http_port, CALLS * processes, requests(bundle))
        return rate, proportional_bytes(server.process_id) / (1 << 20)


def main(bundle: Path) -> None:
    """Prints a line per round, and what the medians say."""
    found = dict[int, list[tuple[float, float]]]()
    for _ in range(ROUNDS):
        for processes in (1, len(os.sched_getaffinity(0))):
            rate, memory = measure(bundle, processes)
            found.setdefault(processes, []).append((rate, memory))
            print(f"processes: {processes}, {rate:.0f} requests/s, {memory:.1f} MiB", flush=True)
    (one, alone), (several, together) = (map(statistics.median, zip(*result, strict=True)) for result in found.values())
    print(f"{several / one:.2f} times the requests; {together - alone:.1f} MiB more")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
