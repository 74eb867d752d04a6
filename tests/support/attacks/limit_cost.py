"""What the limits of clients cost other clients: `python -m tests.support.attacks.limit_cost BUNDLE`.

Two servers answer the same requests in turns: one with its limits, one in which nothing counts or watches what waits
for a client. Prints median and range of the turns: milliseconds of a lone request, requests per second of many at once.
"""

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import AsyncMock, patch

from benchmarks.costs.requests import send_grpc, send_rest, send_unary
from dragoman import command_line
from dragoman.serve import composition
from dragoman.serve.edge import body_parser
from dragoman.serve.grpc import messages as grpc_messages
from dragoman.serve.grpc import unread as grpc_unread
from dragoman.serve.grpc import waits as grpc_waits
from dragoman.serve.host.server_process import ServerProcess, reserve_ports, server_command
from dragoman.serve.http.limits import Connections

AT_ONCE = 32
READY_SECONDS = 60.0
LIMITED = "with limits"
LONE_REQUESTS, MANY_REQUESTS, WARM_UP = 400, 1600, 64


def serve_without_limits(arguments: list[str]) -> None:
    """Runs `dragoman serve` without the limits."""
    nothing = {"sweep": lambda _: None, "hold": lambda *_: None, "make_room": lambda *_: None}
    with ExitStack() as stack:
        for name, function in nothing.items():
            stack.enter_context(patch.object(Connections, name, function))
        stack.enter_context(patch.object(composition, "channel_options", lambda *_, **__: ()))
        stack.enter_context(patch.object(grpc_waits.Waits, "begin", lambda *_: lambda: None))
        stack.enter_context(patch.object(grpc_unread.UnreadResponses, "check", lambda *_: None))
        stack.enter_context(patch.object(grpc_unread.UnreadResponses, "add", AsyncMock()))
        stack.enter_context(patch.object(body_parser, "check_json", lambda *_: None))
        stack.enter_context(patch.object(grpc_messages, "check_message", lambda *_: None))
        command_line.run("serve", arguments)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("bundle", type=Path, help="bundle to serve")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each server")
    given = parser.parse_args()
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        senders = {name: _start(stack, folder, name, given.bundle) for name in (LIMITED, "without")}
        for _ in range(given.rounds):
            for name, kinds in senders.items():
                for kind, figure in kinds.items():
                    found[kind, name].append(figure())
    print(f"| requests | {LIMITED} | without | ratio |\n| --- | --- | --- | --- |")
    for kind in next(iter(senders.values())):
        values = [found[kind, name] for name in senders]
        cells = [f"{median(each):.3g} ({min(each):.3g} to {max(each):.3g})" for each in values]
        print(f"| {kind} | {' | '.join(cells)} | {median(values[0]) / median(values[1]):.3f} |")


def _start(stack: ExitStack, folder: Path, name: str, bundle: Path) -> dict[str, Callable[[], float]]:
    """Starts a server; returns a function per kind of requests, which sends them and returns its figure."""
    http_port, grpc_port = stack.enter_context(reserve_ports(0, 0))
    module = "dragoman" if name == LIMITED else "tests.support.attacks.limit_cost"
    command = server_command(bundle, http_port, grpc_port, (module, "serve"))
    server = stack.enter_context(ServerProcess.run(command, http_port, folder / name))
    server.wait_until_ready(READY_SECONDS)
    figures = dict[str, Callable[[], float]]()
    for protocol, lone, many in (
        ("REST", send_rest(http_port, 1), send_rest(http_port, AT_ONCE)),
        ("gRPC", send_grpc(grpc_port, 1, send_unary), send_grpc(grpc_port, AT_ONCE, send_unary)),
    ):
        figures[f"{protocol}, lone, ms"] = partial(_milliseconds, lone)
        figures[f"{protocol}, {AT_ONCE} at once, per second"] = partial(_rate, many)
    return figures


def _milliseconds(send: Callable[[int], None]) -> float:
    return 1000 * _seconds(send, LONE_REQUESTS) / LONE_REQUESTS


def _rate(send: Callable[[int], None]) -> float:
    return MANY_REQUESTS / _seconds(send, MANY_REQUESTS)


def _seconds(send: Callable[[int], None], count: int) -> float:
    send(WARM_UP)
    begun_seconds = time.monotonic()
    send(count)
    return time.monotonic() - begun_seconds


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve_without_limits(sys.argv[2:])
    else:
        main()
