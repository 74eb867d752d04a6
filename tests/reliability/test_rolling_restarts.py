"""R24: replicas restart in turn under load without an error for clients that do not retry."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from protos.translation_pb2 import TranslateRequest
from serve.clients.channel import ClientSettings
from serve.clients.client import TranslationClient
from serve.clients.errors import CallError
from tests.support.live import WAIT_SECONDS, LiveService, eventually, run_service
from tests.support.promises import Measured

REPLICAS = 3
REQUESTS_PER_SECOND = 100
# Many times the delay of health changes over gRPC's Watch.
LAME_DUCK_SECONDS = 5.0
TEXT = "alpha beta gamma."
ONCE = ClientSettings(retries=False, balanced=True, timeout_seconds=WAIT_SECONDS)

pytestmark = pytest.mark.promise("R24")


class Replica:
    """A service that restarts at the same ports."""

    def __init__(self, bundle_path: Path, stack: ExitStack) -> None:
        self._bundle_path = bundle_path
        self._stack = stack.enter_context(ExitStack())
        self.live = self._start(0)
        self.port = self.live.service.grpc_port

    def restart(self) -> None:
        """Stops as on SIGTERM, with its lame duck stage, and starts again."""
        self._stack.close()
        self.live = self._start(self.port)

    def found_again(self) -> bool:
        """Whether clients have sent requests since the start."""
        return self.live.metric("requests_total") > 0

    def _start(self, port: int) -> LiveService:
        service = run_service(self._bundle_path, grpc_port=port, lame_duck_seconds=LAME_DUCK_SECONDS)
        return self._stack.enter_context(service)


@pytest.fixture
def replicas(bundle_path: Path) -> Iterator[list[Replica]]:
    with ExitStack() as stack:
        yield [Replica(bundle_path, stack) for _ in range(REPLICAS)]


@contextmanager
def open_loop(replicas: list[Replica]) -> Iterator[list[Future[str]]]:
    """Sends requests at a constant rate until the block ends, regardless of their outcomes."""
    sent: list[Future[str]] = []
    over = Event()
    target = "ipv4:" + ",".join(f"127.0.0.1:{replica.port}" for replica in replicas)

    with TranslationClient.open(target, ONCE) as client, ThreadPoolExecutor(32) as pool:

        def translate() -> str:
            try:
                return client.translate(TEXT).translations[0].text
            except CallError as error:
                return repr(error)

        def send() -> None:
            begin_seconds = time.monotonic()
            for number in count():
                if over.wait(max(0.0, begin_seconds + number / REQUESTS_PER_SECOND - time.monotonic())):
                    return
                sent.append(pool.submit(translate))

        sender = pool.submit(send)
        try:
            yield sent
        finally:
            over.set()
            sender.result()


def test_rolling_restarts_fail_no_request(replicas: list[Replica], measured: Measured, *, thorough: bool) -> None:
    rounds = 10 if thorough else 1
    expected = replicas[0].live.call(TranslateRequest(text=[TEXT])).translations[0].text
    with open_loop(replicas) as sent:
        for _ in range(rounds):
            for replica in replicas:
                replica.restart()
                eventually(replica.found_again)
    answers = Counter(answer.result() for answer in sent)
    failed = len(sent) - answers[expected]
    measured("R24", f"{REPLICAS} replicas, each restarted {rounds} times: of {len(sent)} requests {failed} failed")
    assert answers == {expected: len(sent)}
