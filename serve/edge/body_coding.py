"""Decompresses bodies without blocking the event loop for long."""

import zlib
from collections.abc import Callable
from http import HTTPStatus

from starlette.exceptions import HTTPException

from dragoman.serve.errors import InvalidRequestError, RequestTooLargeError
from dragoman.serve.translation.large_work import run_part

# The `wbits` argument of zlib: 16 is added for a gzip header.
_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
# Is decompressed in a fraction of a millisecond.
SMALL_CONTENT_BYTES = 1 << 16


def check_coding(coding: str) -> str | None:
    """Returns the content encoding that the header fields name; None if the body is not compressed.

    Raises HTTPException if the encoding is unknown.
    """
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return None
    if coding not in _WINDOW_BITS:
        known = ", ".join(_WINDOW_BITS)
        problem = f"content-encoding: expected {' or '.join(_WINDOW_BITS)}"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, problem, {"accept-encoding": known})
    return coding


async def decompress(
    body: bytes, coding: str, max_bytes: int, deadline_seconds: float, reserve: Callable[[], object]
) -> bytes:
    """Returns the content of a body: a small one at once, a large one after other large input, in a thread.

    Args:
        body: one compressed stream.
        coding: `gzip` or `deflate`.
        deadline_seconds: on the clock of `time.monotonic`.
        reserve: is called before large content waits for the thread; may raise.

    Raises:
        InvalidRequestError: if the body is not one complete stream of the encoding.
        RequestTooLargeError: if the content has more than `max_bytes`.
        DeadlineExceededError: if large content waits for the thread until the deadline.
    """
    stream = _Stream(coding)
    if len(body) > SMALL_CONTENT_BYTES:
        reserve()
        content = await run_part(deadline_seconds, stream.read, body, max_bytes + 1)
    else:
        first_bytes = min(SMALL_CONTENT_BYTES, max_bytes + 1)
        content = stream.read(body, first_bytes)
        if first_bytes == len(content) <= max_bytes:  # there may be more
            reserve()
            content += await run_part(deadline_seconds, stream.read, stream.rest, max_bytes + 1 - len(content))
    if len(content) > max_bytes:
        raise too_large(max_bytes)
    stream.check_end()
    return content


def too_large(max_bytes: int) -> RequestTooLargeError:
    """Returns the refusal of a body."""
    return RequestTooLargeError(f"body: expected at most {max_bytes} bytes")


class _Stream:
    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._decompressor = zlib.decompressobj(_WINDOW_BITS[coding])

    @property
    def rest(self) -> bytes:
        """What was not decompressed yet."""
        return self._decompressor.unconsumed_tail

    def read(self, data: bytes, max_bytes: int) -> bytes:
        """Returns at most the given number of bytes of content; raises InvalidRequestError if the data are damaged."""
        try:
            return self._decompressor.decompress(data, max_bytes)
        except zlib.error as error:
            problem = f"expected {self._coding} data, as content-encoding declares"
            raise InvalidRequestError("body", problem) from error

    def check_end(self) -> None:
        """Raises InvalidRequestError if the stream is incomplete or bytes follow it."""
        if not self._decompressor.eof or self._decompressor.unused_data:
            problem = f"expected one complete {self._coding} stream, got a truncated one or trailing bytes"
            raise InvalidRequestError("body", problem)
