"""`python -m benchmarks.costs.lone_requests BUNDLE DATA ROUNDS`: the time of a request of a lone client.

The bare engine and the clients of `dragoman bench service` translate the same sentences in turn. So does a REST client
that uses only a socket. Then a gRPC client calls an empty method as often. The last two show how much time a client
itself takes. The table has medians in ms, and their range over the rounds.
"""

import json
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import grpc

from benchmarks.costs.requests import MESSAGE, empty_service, read_answer, rest_request
from benchmarks.harness.process import running_on
from benchmarks.served import ServedSentence, command_of, read_sentences, serving
from benchmarks.service import TIMEOUT_SECONDS, Answer, LoneClient, ServicePlan, lone_clients, measure_lone
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.host.server_process import HOST, reserve_ports


@contextmanager
def socket_client(rest: str) -> Iterator[LoneClient]:
    """Keeps a connection of a REST client that uses only a socket, until the block ends."""
    host, port = rest.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def ask(sentence: ServedSentence) -> Answer:
            connection.sendall(rest_request(sentence.text))
            content = read_answer(connection)
            return lambda: str(json.loads(content)["translations"][0]["text"])

        yield ask


def empty_calls(port: int, count: int) -> float:
    """Returns the median time of a call of the empty method, in milliseconds."""
    message, taken = MESSAGE.SerializeToString(), []
    with grpc.insecure_channel(f"{HOST}:{port}") as channel:
        call: Any = channel.unary_unary("/Empty/Call")
        call(message, wait_for_ready=True)
        for _ in range(count):
            started_seconds = time.perf_counter()
            call(message, timeout=TIMEOUT_SECONDS)
            taken.append(time.perf_counter() - started_seconds)
    return 1000 * median(taken)


def main(plan: ServicePlan) -> None:
    """Prints the table."""
    sentences = read_sentences(Bundle.open(plan.bundle), plan.data)
    with ExitStack() as stack:
        stack.enter_context(running_on(plan.generator_cpus))
        (server,) = stack.enter_context(serving(command_of(plan.bundle, 1, plan.slots), plan.server_cpus))
        with running_on(plan.server_cpus):
            (empty_port,) = stack.enter_context(reserve_ports(0))
            stack.enter_context(empty_service(empty_port, ()))
        clients = stack.enter_context(lone_clients(plan, sentences, server.targets))
        clients["REST, by socket"] = stack.enter_context(socket_client(server.targets.rest))
        for name, rounds in measure_lone(clients, sentences.sentences[: plan.sentences], plan.rounds).items():
            for figure in rounds[0]:
                show(name, figure, [repetition[figure] for repetition in rounds])
        show("gRPC, empty method", "a call, ms", [empty_calls(empty_port, plan.sentences) for _ in range(plan.rounds)])


def show(name: str, figure: str, values: Sequence[float]) -> None:
    """Prints a line of the table."""
    print(f"{name:<20}{figure:<22}{median(values):6.2f} ({min(values):.2f}-{max(values):.2f})")


if __name__ == "__main__":
    main(ServicePlan(bundle=Path(sys.argv[1]), data=sys.argv[2], rounds=int(sys.argv[3])))
