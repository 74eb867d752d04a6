"""Keys under load: several processes and a restart never exceed a quota, and counts are exact to the character."""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from dragoman.protos.translation_pb2 import TranslateRequest, TranslateResponse
from dragoman.serve.host.state import State
from dragoman.serve.keys.key import KeyLimits, period_start
from dragoman.serve.keys.store import KeyStore
from dragoman.serve.keys.usage import UsageStore
from tests.support.live import TRANSLATE_METHOD
from tests.support.paths import ROOT
from tests.support.served import WAIT_SECONDS, Server, serve

BUNDLE = ROOT / "bundles" / "multi30k-en-de"
WORDS = ["a", "man", "walks", "over", "the", "small", "bridge", "."]
QUOTA = 20_000
ANSWERED, REFUSED, OTHER = "answered", "refused", "other"


def over_rest(server: Server, key: str, text: str) -> int:
    return server.post({"text": text}, Authorization=f"Bearer {key}")[0]


def over_deepl(server: Server, key: str, text: str) -> int:
    body = {"text": [text], "source_lang": "EN", "target_lang": "DE"}
    return server.post(body, "/v2/translate", Authorization=f"DeepL-Auth-Key {key}")[0]


def over_libretranslate(server: Server, key: str, text: str) -> int:
    return server.post({"q": text, "source": "en", "target": "de", "api_key": key}, "/translate")[0]


def over_grpc(server: Server, key: str, text: str) -> int:
    with grpc.insecure_channel(f"127.0.0.1:{server.ready['grpc_port']}") as link:
        call: Any = link.unary_unary(TRANSLATE_METHOD, TranslateRequest.SerializeToString, TranslateResponse.FromString)
        try:
            call(TranslateRequest(text=[text]), timeout=WAIT_SECONDS, metadata=[("authorization", f"Bearer {key}")])
        except grpc.RpcError as error:
            exhausted = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "quota" in (error.details() or "")
            return 429 if exhausted else 503
    return 200


SHAPES: tuple[Callable[[Server, str, str], int], ...] = (over_rest, over_deepl, over_libretranslate, over_grpc)
KINDS = {200: ANSWERED, 429: REFUSED, 456: REFUSED}


def load(server: Server, keys: list[str], *, clients: int, requests: int, seed: int) -> dict[str, Counter[str]]:
    """Sends requests of all shapes at once, and returns the characters of each key by outcome."""
    counts = {key: Counter[str]() for key in keys}
    lock = threading.Lock()

    def run(number: int) -> None:
        chances = random.Random(1000 * seed + number)
        for _ in range(requests):
            key, text = chances.choice(keys), " ".join(chances.choices(WORDS, k=chances.randint(1, 8)))
            kind = KINDS.get(chances.choice(SHAPES)(server, key, text), OTHER)
            with lock:
                counts[key][kind] += len(text)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts


def used(folder: Path, name: str) -> int:
    state = State(folder)
    key = KeyStore(state).get(name)
    count = UsageStore(state, "").used(key.id, period_start(key.limits.period, time.time()))
    state.close()
    return count


def test_quotas_hold_over_processes_and_restarts_and_counts_are_exact(tmp_path: Path, *, thorough: bool) -> None:
    clients, requests, processes = (64, 60, 4) if thorough else (8, 10, 2)
    quota = QUOTA if thorough else 1000
    state = State(tmp_path)
    limits = {"bounded": KeyLimits(characters=quota), "free": KeyLimits()}
    keys = {name: KeyStore(state).create(name, limit)[1] for name, limit in limits.items()}
    state.close()
    totals = {key: Counter[str]() for key in keys.values()}
    for seed in range(2):
        options = ("--processes", str(processes), "--state-dir", str(tmp_path), "--stored-api-keys", "--slots", "8")
        with serve(BUNDLE, *options, "--queue-limit", "200") as server:
            for key, counts in load(server, list(keys.values()), clients=clients, requests=requests, seed=seed).items():
                totals[key] += counts
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(WAIT_SECONDS)
    assert {name: used(tmp_path, name) for name in keys} == {name: totals[key][ANSWERED] for name, key in keys.items()}
    bounded, free = totals[keys["bounded"]], totals[keys["free"]]
    assert quota - 200 < bounded[ANSWERED] <= quota
    assert bounded[REFUSED]
    assert not free[REFUSED]
    assert not bounded[OTHER] + free[OTHER]
