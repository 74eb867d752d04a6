"""Compressed bodies over real connections: valid ones are read, and decompression stops at the limit."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.live import LiveService, run_service

MAX_BODY_BYTES = 2000
GOOD = json.dumps({"text": "alpha beta."}).encode()
CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.fixture(scope="module")
def live(bundle_path: Path) -> Iterator[LiveService]:
    with run_service(bundle_path, max_body_bytes=MAX_BODY_BYTES) as service:
        yield service


def status(live: LiveService, content: bytes, coding: str) -> int:
    headers = {"content-type": "application/json", "content-encoding": coding}
    return live.post(content=content, headers=headers).status_code


@pytest.mark.parametrize("coding", CODINGS)
def test_a_decompressed_body_is_limited_to_the_byte(live: LiveService, coding: str) -> None:
    largest = GOOD + b" " * (MAX_BODY_BYTES - len(GOOD))
    assert status(live, CODINGS[coding](largest), coding) == 200
    assert status(live, CODINGS[coding](largest + b" "), coding) == 413


@pytest.mark.parametrize("coding", CODINGS)
def test_a_decompression_bomb_is_rejected(live: LiveService, coding: str) -> None:
    bomb = CODINGS[coding](bytes(MAX_BODY_BYTES * 500))
    assert len(bomb) < MAX_BODY_BYTES
    assert status(live, bomb, coding) == 413


@pytest.mark.parametrize(
    "content",
    [GOOD, b"", gzip.compress(GOOD)[:-1], gzip.compress(GOOD) + b"x", zlib.compress(GOOD), b"\x1f\x8b" + bytes(20)],
    ids=["plain", "empty", "cut off", "too long", "of another kind", "only a beginning"],
)
def test_a_body_that_contradicts_its_coding_is_rejected(live: LiveService, content: bytes) -> None:
    assert status(live, content, "gzip") == 400


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "x"])
def test_an_unknown_coding_is_rejected_with_the_known_ones(live: LiveService, coding: str) -> None:
    headers = {"content-type": "application/json", "content-encoding": coding}
    answer = live.post(content=GOOD, headers=headers)
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "gzip, deflate")


@pytest.mark.parametrize("coding", ["identity", "GZIP"])
def test_codings_ignore_case_and_may_be_absent(live: LiveService, coding: str) -> None:
    assert status(live, GOOD if coding == "identity" else gzip.compress(GOOD), coding) == 200
