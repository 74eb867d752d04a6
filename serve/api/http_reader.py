"""What comes with every REST request before anybody knows what it asks for: its deadline and its body.

A body is read until its limit and no further, and so is what a compressed one becomes. Called by the handlers of every
REST interface; knows nothing of what is in a body.
"""

import asyncio
import time
import zlib
from http import HTTPStatus

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from serve.errors import CancelledError, DeadlineExceededError, InvalidRequestError, RequestTooLargeError

TIMEOUT_HEADER = "x-request-timeout-ms"
MAX_TIMEOUT_MS = 3_600_000
# What zlib is told to expect of each coding: gzip's header, or its own.
_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class RequestReader:
    """Reads requests within the limits of the service."""

    def __init__(self, max_body_bytes: int, default_timeout_seconds: float) -> None:
        """Keeps the limits.

        Args:
            max_body_bytes: the largest body that is read, compressed or not.
            default_timeout_seconds: how long a request may take that sets no deadline, its body included.
        """
        self._max_body_bytes = max_body_bytes
        self._default_timeout_seconds = default_timeout_seconds

    async def read(self, request: Request) -> tuple[bytes, float]:
        """Returns the body of a request, decompressed, and its deadline on the clock of `time.monotonic`.

        Raises:
            ServiceError: if the body cannot be had.
            HTTPException: if it is compressed in a way that is not known.
        """
        deadline_seconds = time.monotonic() + self._timeout_seconds(request)
        coding = _coding(request)
        try:
            async with asyncio.timeout_at(deadline_seconds):
                body = await self._read_body(request)
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before the request was complete") from None
        return (body if coding is None else self._decompress(body, coding)), deadline_seconds

    async def _read_body(self, request: Request) -> bytes:
        if int(request.headers.get("content-length", "0")) > self._max_body_bytes:
            raise self._too_large()
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > self._max_body_bytes:
                    raise self._too_large()
        except ClientDisconnect:
            raise CancelledError("the client went away") from None
        return bytes(body)

    def _decompress(self, body: bytes, coding: str) -> bytes:
        decompressor = zlib.decompressobj(_WINDOW_BITS[coding])
        try:
            content = decompressor.decompress(body, self._max_body_bytes + 1)
        except zlib.error as error:
            raise InvalidRequestError("body", f"not {coding}, as content-encoding says") from error
        if len(content) > self._max_body_bytes:
            raise self._too_large()
        if not decompressor.eof or decompressor.unused_data:
            raise InvalidRequestError("body", f"{coding} that ends too early or too late")
        return content

    def _too_large(self) -> RequestTooLargeError:
        return RequestTooLargeError(f"body: expected at most {self._max_body_bytes} bytes")

    def _timeout_seconds(self, request: Request) -> float:
        value = request.headers.get(TIMEOUT_HEADER)
        if value is None:
            return self._default_timeout_seconds
        # `isdecimal` alone would let in digits of other scripts, and `int` alone white space and underscores.
        if not (value.isascii() and value.isdecimal() and len(value) <= len(str(MAX_TIMEOUT_MS))):
            raise InvalidRequestError(TIMEOUT_HEADER, f"not a number, expected 1 to {MAX_TIMEOUT_MS}")
        if not 1 <= int(value) <= MAX_TIMEOUT_MS:
            raise InvalidRequestError(TIMEOUT_HEADER, f"{int(value)}, expected 1 to {MAX_TIMEOUT_MS}")
        return int(value) / 1000


def _coding(request: Request) -> str | None:
    """Returns how the body is compressed; None: not at all."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding == "identity":
        return None
    if coding not in _WINDOW_BITS:
        known = ", ".join(_WINDOW_BITS)
        problem = f"content-encoding: expected {' or '.join(_WINDOW_BITS)}"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, problem, {"accept-encoding": known})
    return coding
