"""Faults at the worst moment: each request gets exactly one response, or none if its client has left.

At one point of a request, clients disconnect, deadlines pass or the model fails. Then the other threads get time to
react before the thread at that point continues.
"""

import json
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos.translation_pb2 import TranslateRequest
from tests.support.fake_bundles import LONG_TEXT, MAX_TARGET_TOKENS
from tests.support.fakes import EOS_ID, FakeModel, translate
from tests.support.live import TRANSLATE_METHOD, WAIT_SECONDS, LiveService, eventually, run_service
from tests.support.promises import Measured

CLIENTS = 12
TEXTS = ("alpha.", "beta gamma.", LONG_TEXT)
JSON = {"content-type": "application/json"}
# Outcomes of answered requests: those of a failing model, before and after the failure is known; those of deadlines.
KNOWN = {"200", "500", "503", "504", "429", "OK", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}
# About the time that other threads need to see a change.
MOMENT_SECONDS = 0.004


@dataclass
class Trouble:
    """Faults at a point: of clients that wait for a response or just got one, and of the next step of the model."""

    point: str
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    connections: list[HTTPConnection] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    model_fails: bool = False
    times: int = 0

    def on_step(self) -> None:
        """Fails once per command."""
        if self.model_fails:
            self.model_fails = False
            raise RuntimeError("bad luck")

    def strike(self, point: str) -> None:
        """Injects a random fault, or none, at the chosen point."""
        if point != self.point:
            return
        self.times += 1
        if self.chance.random() < 0.02:
            self.model_fails = True
        if self.chance.random() < 0.3:
            self._break_a_connection()
        if self.chance.random() < 0.5:
            time.sleep(self.chance.random() * MOMENT_SECONDS)

    def _break_a_connection(self) -> None:
        if self.calls and self.chance.random() < 0.3:
            self.chance.choice(self.calls).cancel()
            return
        with suppress(OSError, IndexError):
            sock = self.chance.choice(self.connections).sock
            if sock is not None:
                sock.shutdown(SHUT_RDWR)


def hook(live: LiveService, trouble: Trouble) -> None:
    """Injects faults at every point of a request."""
    pipeline: Any = live.pipeline

    def surround(owner: Any, name: str, before: str, after: str) -> None:
        original = getattr(owner, name)

        def in_trouble(*arguments: Any, **options: Any) -> Any:
            trouble.strike(before)
            result = original(*arguments, **options)
            trouble.strike(after)
            return result

        setattr(owner, name, in_trouble)

    surround(pipeline.scheduler, "submit", "enqueue", "enqueue")
    surround(live.engines[0], "step", "step start", "step end")
    surround(live.service.metrics, "finish_request", "after response", "after response")
    translate_texts, stream = pipeline.translator.translate, pipeline.translator.stream

    async def translate_in_trouble(*arguments: Any) -> Any:
        response = await translate_texts(*arguments)
        trouble.strike("before response")
        return response

    async def stream_in_trouble(*arguments: Any) -> AsyncGenerator[Any]:
        async for event in stream(*arguments):
            trouble.strike("before response")
            yield event

    pipeline.translator.translate, pipeline.translator.stream = translate_in_trouble, stream_in_trouble


@contextmanager
def among(things: list[Any], thing: Any) -> Iterator[None]:
    """Keeps an element in a list while the block runs."""
    things.append(thing)
    try:
        yield
    finally:
        things.remove(thing)


def ask_rest(live: LiveService, trouble: Trouble, expected: dict[str, str], requests: int, client: int) -> Counter[str]:
    """Sends requests over one connection until it breaks; checks that each response belongs to the latest request."""
    chance, seen = random.Random(client), Counter[str]()
    connection = HTTPConnection("127.0.0.1", live.service.http_port, timeout=WAIT_SECONDS)
    with among(trouble.connections, connection):
        for number in range(requests):
            text, path = chance.choice(TEXTS), chance.choice(["/v1/translate", "/v1/translate/stream"])
            headers = {**JSON, "x-request-id": f"{client}-{number}"}
            if chance.random() < 0.2:
                headers["x-request-timeout-ms"] = str(chance.randint(1, 30))
            try:
                connection.request("POST", path, json.dumps({"text": text}), headers)
                answer = connection.getresponse()
                body = answer.read().decode()
            except TimeoutError:
                raise
            except (OSError, HTTPException):
                seen["gone"] += 1
                connection.close()
                continue
            assert answer.headers["x-request-id"] == headers["x-request-id"]
            seen[str(check_rest(answer.status, body, expected[text]))] += 1
        connection.close()
    return seen


def check_rest(status: int, body: str, expected: str) -> int:
    """Returns the status of a response, or of the problem at the end of its stream."""
    if not body.startswith("event:"):
        assert status != 200 or json.loads(body)["translations"][0]["text"] == expected
        return status
    name, data = body.rstrip().rpartition("event: ")[2].split("\n")[:2]
    assert body.count("event: result") + body.count("event: error") == 1
    last = json.loads(data.removeprefix("data: "))
    if name == "error":
        assert isinstance(last["status"], int)
        return int(last["status"])
    assert last["translations"][0]["text"] == expected
    return status


def ask_grpc(live: LiveService, trouble: Trouble, expected: dict[str, str], requests: int, client: int) -> Counter[str]:
    chance, seen = random.Random(client), Counter[str]()
    with live.grpc_channel() as channel:
        method: Any = channel.unary_unary(TRANSLATE_METHOD, response_deserializer=lambda data: data)
        for _ in range(requests):
            text = chance.choice(TEXTS)
            timeout = chance.uniform(0.001, 0.03) if chance.random() < 0.2 else WAIT_SECONDS
            call = method.future(TranslateRequest(text=[text]).SerializeToString(), timeout=timeout)
            with among(trouble.calls, call):
                code: grpc.StatusCode = call.code()
            assert code is not grpc.StatusCode.DEADLINE_EXCEEDED or timeout < WAIT_SECONDS, "it hangs"
            if code is grpc.StatusCode.OK:
                assert expected[text].encode() in call.result()
            seen["gone" if code is grpc.StatusCode.CANCELLED else code.name] += 1
    return seen


@pytest.mark.promise("R20")
@pytest.mark.parametrize("point", ["enqueue", "step start", "step end", "before response", "after response"])
def test_every_request_has_one_outcome_at_any_fault(
    bundle_path: Path, tokenizer: Tokenizer, measured: Measured, *, thorough: bool, point: str
) -> None:
    expected = {}
    for text in TEXTS:
        target_ids, _, _ = translate((*tokenizer.encode(text), EOS_ID), MAX_TARGET_TOKENS)
        expected[text] = tokenizer.decode(target_ids)
    requests = (2_400 if thorough else 180) // CLIENTS
    trouble = Trouble(point)
    with capture_logs(), run_service(bundle_path, [FakeModel(4, on_step=trouble.on_step)], queue_limit=100) as live:
        golden, submitted = live.metric("sequences_finished_total"), live.count_submitted()
        hook(live, trouble)
        asks: list[Callable[..., Counter[str]]] = [ask_grpc, ask_rest, ask_rest]
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [
                pool.submit(asks[client % len(asks)], live, trouble, expected, requests, client)
                for client in range(CLIENTS)
            ]
            seen = sum((client.result() for client in clients), start=Counter[str]())
        live.settle()
        eventually(lambda: live.pipeline.scheduler.idle)
        answered, sent = sum(seen.values()) - seen["gone"], sum(seen.values())
        eventually(lambda: live.metric("sequences_finished_total") - golden == len(submitted))
        assert live.pipeline.scheduler._reserved_rows == 0
        assert set(seen) <= KNOWN | {"gone"}
        assert trouble.times > requests
        assert seen["gone"] > 0
        assert live.metric("requests_total") <= sent
    measured(
        "R20",
        f"{point}: trouble {trouble.times:,} times; of {sent:,} requests {answered:,} answered, {seen['gone']:,} gone, "
        f"hung 0, answered twice 0",
    )
