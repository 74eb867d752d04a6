"""`python -m benchmarks.costs.requests BUNDLE`: CPU time of the server per request that needs no engine.

All requests but the first get their translations from the result cache. The empty method of gRPC is a service of
`grpc.aio`, in the event loop of the server, that returns bytes of the same size. A second one reads its message as the
server does, which bounds the wait for it. A closed loop sends `CALLS` requests at once. Prints a table.

With `--instructions`, the server runs in Callgrind (Valgrind), and the table has instructions instead. With `--time`,
it has the time of a request for its client, or the time between responses if several requests are sent at once.
"""

import asyncio
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio

from dragoman.protos.translation_pb2 import TranslateManyRequest, TranslateRequest, TranslateResponse
from dragoman.serve.host import event_loop
from dragoman.serve.host.server_process import HOST, ServerProcess, reserve_ports, server_command

CALLS = 16
WARM_UP = 500
REQUESTS = 4000
COUNTED = 160
TEXT = "A man is riding a bicycle down the street."
LANGUAGES: dict[str, Any] = {"source_language": "en", "target_language": "de"}
REST_HEADERS = b"Accept: */*\r\nAccept-Encoding: gzip, deflate\r\nUser-Agent: cost\r\n"
SERVICE = "/dragoman.v1.TranslationService"
MESSAGE = TranslateRequest(text=[TEXT], **LANGUAGES)


def cpu_seconds(process_id: int) -> float:
    """Returns the CPU time of a process so far."""
    # The CPU clock of a process (clock_getcpuclockid): its inverted number above three bits that name the clock.
    return time.clock_gettime((~process_id << 3) | 2)


def rest_request(text: str, headers: bytes = b"") -> bytes:
    """Returns a request of `/v1/translate`, with further lines of headers."""
    body = json.dumps({"text": [text], **LANGUAGES}).encode()
    return (
        b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\n%bContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (headers, len(body), body)
    )


def read_answer(connection: socket.socket) -> bytes:
    """Returns the body of a response with status 200."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise AssertionError(data.decode())
    (length,) = (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    while len(body) < length:
        body += connection.recv(1 << 16)
    return body


def send_rest(port: int, calls: int) -> Callable[[int], None]:
    """Returns a function that sends a number of REST requests, `calls` at once, each over its connection."""
    connections = [socket.create_connection((HOST, port)) for _ in range(calls)]
    request = rest_request(TEXT, REST_HEADERS)

    def send(count: int) -> None:
        for _ in range(count // calls):
            for connection in connections:
                connection.sendall(request)
            for connection in connections:
                read_answer(connection)

    return send


Client = Callable[[grpc.aio.Channel, int], Coroutine[Any, Any, None]]


async def _call(channel: grpc.aio.Channel, method: str, message: bytes, count: int) -> None:
    call: Any = channel.unary_unary(method)
    for _ in range(count):
        await call(message)


async def send_unary(channel: grpc.aio.Channel, count: int) -> None:
    """Sends requests of `Translate` one at a time."""
    await _call(channel, f"{SERVICE}/Translate", MESSAGE.SerializeToString(), count)


async def send_empty(method: str, channel: grpc.aio.Channel, count: int) -> None:
    """Sends requests to an empty method one at a time."""
    await _call(channel, f"/Empty/{method}", MESSAGE.SerializeToString(), count)


async def send_many(channel: grpc.aio.Channel, count: int) -> None:
    """Sends requests of one `TranslateMany` stream, 4 at once."""
    call: Any = channel.stream_stream(f"{SERVICE}/TranslateMany")()
    message = TranslateManyRequest(id="1", request=MESSAGE).SerializeToString()
    for _ in range(count // 4):
        for _ in range(4):
            await call.write(message)
        for _ in range(4):
            await call.read()
    await call.done_writing()


def send_grpc(port: int, calls: int, client: Client) -> Callable[[int], None]:
    """Returns a function that sends a number of requests over one connection, `calls` at once."""

    async def run(count: int) -> None:
        async with grpc.aio.insecure_channel(f"{HOST}:{port}") as channel:
            await asyncio.gather(*(client(channel, count // calls) for _ in range(calls)))

    return lambda count: asyncio.run(run(count))


class CpuTime:
    """Measures milliseconds of CPU per request."""

    unit = "ms of CPU"
    command: Sequence[str] = ()
    start_seconds = 60.0

    def measure(self, process_id: int, send: Callable[[int], None]) -> float:
        """Returns the cost of a request."""
        send(WARM_UP)
        before = cpu_seconds(process_id)
        send(REQUESTS)
        return 1000 * (cpu_seconds(process_id) - before) / REQUESTS


class WallTime:
    """Measures milliseconds per request, as the client sees them."""

    unit = "ms"
    command: Sequence[str] = ()
    start_seconds = 60.0

    def measure(self, _process_id: int, send: Callable[[int], None]) -> float:
        """Returns the time of a request."""
        send(WARM_UP)
        started_seconds = time.perf_counter()
        send(REQUESTS)
        return 1000 * (time.perf_counter() - started_seconds) / REQUESTS


class Instructions:
    """Counts thousands of instructions per request, outside of the kernel; its files are in `folder`."""

    unit = "thousand instructions"
    start_seconds = 600.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        output = f"--callgrind-out-file={folder}/counts.%p"
        self.command = ("valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", output)

    def measure(self, process_id: int, send: Callable[[int], None]) -> float:
        """Returns the cost of a request."""
        send(CALLS)
        self._control("--instr=on", process_id)
        send(COUNTED)
        self._control("--instr=off", process_id)
        before = set(self._folder.iterdir())
        self._control("--dump", process_id)
        (dump,) = set(self._folder.iterdir()) - before
        (total,) = re.findall(r"^totals: (\d+)", dump.read_text(), re.MULTILINE)
        return int(total) / COUNTED / 1000

    def _control(self, what: str, process_id: int) -> None:
        command = ["callgrind_control", what, str(process_id)]
        subprocess.run(command, check=True, capture_output=True)


async def _serve_empty(port: int) -> None:
    size = TranslateResponse().ByteSize() + 150

    async def handle(_request: bytes, _context: object) -> bytes:
        return bytes(size)

    async def read(_requests: object, context: Any) -> bytes:
        await context.read()
        return bytes(size)

    methods: dict[str, Any] = {
        "Call": grpc.unary_unary_rpc_method_handler(handle),
        "Read": grpc.stream_unary_rpc_method_handler(read),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Empty", methods),))
    server.add_insecure_port(f"{HOST}:{port}")
    await server.start()
    await server.wait_for_termination()


@contextmanager
def empty_service(port: int, within: Sequence[str]) -> Iterator[int]:
    """Runs the empty method within another command, and yields the process id."""
    command = [*within, sys.executable, "-m", "benchmarks.costs.requests", "--serve-empty", str(port)]
    with subprocess.Popen(command) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def measure(bundle: Path, cost: CpuTime | WallTime | Instructions) -> None:
    """Prints the table."""
    with ExitStack() as stack:
        http_port, grpc_port, empty_port = stack.enter_context(reserve_ports(0, 0, 0))
        command = [*cost.command, *server_command(bundle, http_port, grpc_port)]
        options = ["--engines", "1", "--result-cache-bytes", "1000000"]
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        empty = stack.enter_context(empty_service(empty_port, cost.command))
        server = stack.enter_context(ServerProcess.run([*command, *options], http_port, log))
        server.wait_until_ready(cost.start_seconds)
        clients: dict[str, tuple[int, int, Client]] = {
            "gRPC, empty method": (empty, empty_port, partial(send_empty, "Call")),
            "gRPC, empty, reading": (empty, empty_port, partial(send_empty, "Read")),
            "gRPC, Translate": (server.process_id, grpc_port, send_unary),
            "gRPC, TranslateMany": (server.process_id, grpc_port, send_many),
        }
        print(f"request                1 at once  16 at once  ({cost.unit})")
        figures = [cost.measure(server.process_id, send_rest(http_port, calls)) for calls in (1, CALLS)]
        print(f"{'REST, /v1/translate':<22} {figures[0]:9.3f} {figures[1]:11.3f}")
        for name, (process_id, port, client) in clients.items():
            figures = [cost.measure(process_id, send_grpc(port, calls, client)) for calls in (1, CALLS)]
            print(f"{name:<22} {figures[0]:9.3f} {figures[1]:11.3f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--serve-empty":
        event_loop.run(_serve_empty(int(sys.argv[2])))
    elif "--instructions" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(sys.argv[1]), Instructions(Path(folder)))
    else:
        measure(Path(sys.argv[1]), WallTime() if "--time" in sys.argv else CpuTime())
