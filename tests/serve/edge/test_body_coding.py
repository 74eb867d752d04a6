"""Decompression: exact at every size, and large content leaves the event loop to others."""

import asyncio
import gzip
import math
import threading
import time
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.edge import body_coding
from dragoman.serve.edge.body_coding import SMALL_CONTENT_BYTES, decompress
from dragoman.serve.errors import DeadlineExceededError, InvalidRequestError, RequestTooLargeError, ServiceError

CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
SIZES = (0, 1, SMALL_CONTENT_BYTES - 1, SMALL_CONTENT_BYTES, SMALL_CONTENT_BYTES + 1, 3 * SMALL_CONTENT_BYTES)


def read(body: bytes, coding: str, max_bytes: int) -> bytes | type[ServiceError]:
    try:
        return asyncio.run(decompress(body, coding, max_bytes, math.inf, lambda: None))
    except ServiceError as error:
        return type(error)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("random", [False, True])
def test_content_is_limited_to_the_byte(coding: str, size: int, *, random: bool) -> None:
    """Whether it compresses well or not at all."""
    content = (
        bytes(size)
        if not random
        else b"".join(zlib.crc32(bytes([n % 256, n >> 8])).to_bytes(4) for n in range(size // 4 + 1))[:size]
    )
    body = CODINGS[coding](content)
    assert read(body, coding, size) == content
    assert read(body, coding, size + 1) == content
    if size:
        assert read(body, coding, size - 1) is RequestTooLargeError
    assert read(body[:-1], coding, size) is InvalidRequestError
    assert read(body + b"x", coding, size) is InvalidRequestError


@given(st.binary(max_size=100), st.sampled_from(sorted(CODINGS)), st.booleans())
def test_any_body_is_read_or_rejected(data: bytes, coding: str, begins_well: bool) -> None:
    body = CODINGS[coding](data)[:-4] + data if begins_well else data
    assert read(body, coding, 50) in (data, InvalidRequestError, RequestTooLargeError)


@pytest.mark.parametrize(("size", "aside"), [(100, False), (SMALL_CONTENT_BYTES + 1, True)])
def test_only_large_content_is_read_in_another_thread(
    monkeypatch: pytest.MonkeyPatch, size: int, *, aside: bool
) -> None:
    threads = set[str]()

    class Stream(body_coding._Stream):
        def read(self, data: bytes, max_bytes: int) -> bytes:
            threads.add(threading.current_thread().name)
            content = super().read(data, max_bytes)
            assert len(content) <= SMALL_CONTENT_BYTES or threading.current_thread() is not threading.main_thread()
            return content

    monkeypatch.setattr(body_coding, "_Stream", Stream)
    assert read(gzip.compress(bytes(size)), "gzip", size) == bytes(size)
    assert len(threads) == (2 if aside else 1)


def test_a_thread_that_is_free_too_late_is_a_missed_deadline() -> None:
    body = gzip.compress(bytes(2 * SMALL_CONTENT_BYTES))
    with pytest.raises(DeadlineExceededError):
        asyncio.run(decompress(body, "gzip", 2 * SMALL_CONTENT_BYTES, time.monotonic(), lambda: None))
