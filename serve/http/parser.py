"""Parsing of HTTP/1.1: httptools, with bounds on every part of a request.

httptools (llhttp) rejects ambiguous framing, line folding and unknown versions. This module adds bounds and the rules
of RFC 9112 that llhttp leaves to servers.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum, auto
from http import HTTPStatus
from itertools import chain

import httptools

from dragoman.serve.observability.instruments import CloseReason

MAX_TARGET_BYTES = 8 << 10
MAX_HEADER_FIELDS = 100
# Requests that wait for the answer to an earlier one.
MAX_PIPELINED = 16
# The size of all names and values, and of anything else between two parts of a body.
MAX_HEADER_BYTES = 32 << 10
# A name, an IPv4 address, or an IPv6 address in brackets; it may be empty.
_HOST = re.compile(rb"(?:[\w.~!$&'()*+,;=%-]*|\[[\w:.%~-]+\])(?::\d*)?")
_FRAMING = (b"content-length", b"transfer-encoding")


class HttpRefusalError(Exception):
    """A request that is not passed on: the answer to it, after which the connection closes."""

    def __init__(self, status: HTTPStatus, detail: str, reason: CloseReason = "invalid") -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason


def header_too_large() -> HttpRefusalError:
    """Returns the refusal of a header."""
    problem = f"header: expected at most {MAX_HEADER_FIELDS} fields and {MAX_HEADER_BYTES} bytes"
    return HttpRefusalError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, problem)


def gap_too_large() -> HttpRefusalError:
    """Returns the refusal of what is neither a header nor a body: line breaks, chunk extensions, trailer fields."""
    problem = f"expected at most {MAX_HEADER_BYTES} bytes before, between and behind the parts of a body"
    return HttpRefusalError(HTTPStatus.BAD_REQUEST, problem)


class Part(Enum):
    """What the parser expects: the start of a request, the rest of its header, or the rest of its body."""

    NEXT = auto()
    HEADER = auto()
    BODY = auto()


# A member of an enumeration costs ten times as much as a global in Python 3.11.
_NEXT, _HEADER, _BODY = Part


class BoundedParser(ABC):
    """Parses the requests of one connection. httptools calls the methods `on_...`.

    Attributes:
        part: what comes next.
        target, headers: of the last header so far; names are in lower case.
        expects_continue: whether the client waits for an answer before it sends the body.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        # A client that sends more requests behind one with `connection: close` gets the answer to that one.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.part = _NEXT
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.expects_continue = False
        self._unparsed_bytes = 0
        self._replays = False

    @property
    def header_bytes(self) -> int:
        """Size of the names and values of the last header so far."""
        return sum(map(len, chain.from_iterable(self.headers)))

    @abstractmethod
    def begin_header(self) -> None:
        """Takes note of the first byte of a request."""

    @abstractmethod
    def begin_request(self, method: bytes, version: str, *, keep_alive: bool) -> None:
        """Takes a complete header; raises HttpRefusalError, or httptools.HttpParserError for an invalid target."""

    @abstractmethod
    def add_body(self, data: bytes) -> None:
        """Takes a part of the body."""

    @abstractmethod
    def end_request(self) -> None:
        """Takes the end of the body."""

    def stop_parsing(self) -> None:
        """Breaks the reference cycle with httptools."""
        del self._parser

    def feed(self, data: bytes) -> HttpRefusalError | None:
        """Parses input; returns the refusal of an invalid or too large request, after which nothing can be parsed."""
        self._unparsed_bytes += len(data)
        try:
            while data:
                data = self._parse(data)
        except httptools.HttpParserError as error:
            refusal = error.__context__  # of a method below
            invalid = HttpRefusalError(HTTPStatus.BAD_REQUEST, f"invalid HTTP: {error}")
            return refusal if isinstance(refusal, HttpRefusalError) else invalid
        if self.part is _HEADER and len(self.headers) > MAX_HEADER_FIELDS:
            return header_too_large()
        if self._unparsed_bytes > MAX_HEADER_BYTES:
            return header_too_large() if self.part is _HEADER else gap_too_large()
        return None

    def _parse(self, data: bytes) -> bytes:
        """Parses input; returns the rest after an offer to upgrade, which is ignored.

        Java's HTTP client offers HTTP/2 with its first request. httptools takes the body for the other protocol, so a
        new parser continues behind a header without the offer.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._parser = httptools.HttpRequestParser(self)
            self._replays = True
            fields = [b"%b: %b\r\n" % field for field in self.headers if field[0] in _FRAMING]
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(fields))
            return data[offer.args[0] :]
        return b""

    def on_message_begin(self) -> None:
        """Begins a request."""
        if not self._replays:
            self.target, self.headers, self.expects_continue = b"", [], False
            self.part = _HEADER
            self.begin_header()

    def on_url(self, url: bytes) -> None:
        """Adds to the request target."""
        self.target += url
        if len(self.target) > MAX_TARGET_BYTES:
            problem = f"target: expected at most {MAX_TARGET_BYTES} bytes"
            raise HttpRefusalError(HTTPStatus.REQUEST_URI_TOO_LONG, problem)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Adds a field; fields behind a body are ignored. `feed` bounds what one header may collect."""
        if self.part is _HEADER:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Starts the request, or queues it behind an earlier one."""
        if self._replays:
            self._replays = False
            return
        if len(self.headers) > MAX_HEADER_FIELDS or self.header_bytes > MAX_HEADER_BYTES:
            raise header_too_large()
        version = self._parser.get_http_version()
        names = [name for name, _ in self.headers]
        check_header(version, names, self.headers)
        self.expects_continue = b"expect" in names and _expects_continue(self.headers)
        keep_alive = version != "1.0" and self._parser.should_keep_alive()
        self.begin_request(self._parser.get_method(), version, keep_alive=keep_alive)
        self.part = _BODY
        self._unparsed_bytes = 0

    def on_body(self, body: bytes) -> None:
        """Adds to the body."""
        self._unparsed_bytes = 0
        self.add_body(body)

    def on_message_complete(self) -> None:
        """Ends the request, unless its body follows an offer to upgrade."""
        if not self._parser.should_upgrade():
            self.part = _NEXT
            self._unparsed_bytes = 0
            self.end_request()


def _expects_continue(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


def check_header(version: str, names: Sequence[bytes], headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Checks a complete header with names in lower case.

    Raises:
        HttpRefusalError: for another version than 1.0 and 1.1, a missing, ambiguous or invalid host, or another
            transfer coding than chunked.
    """
    if version not in ("1.0", "1.1"):
        raise HttpRefusalError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, f"HTTP version: {version}, expected 1.1")
    hosts = names.count(b"host")
    if hosts > 1 or (not hosts and version == "1.1"):
        raise HttpRefusalError(HTTPStatus.BAD_REQUEST, f"host: expected one header field, got {hosts}")
    if hosts and not _HOST.fullmatch(headers[names.index(b"host")][1]):
        raise HttpRefusalError(HTTPStatus.BAD_REQUEST, "host: expected a name or an address, and a port")
    if b"transfer-encoding" not in names:
        return
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings != [b"chunked"] or version == "1.0":
        raise HttpRefusalError(HTTPStatus.NOT_IMPLEMENTED, "transfer-encoding: expected chunked, over HTTP/1.1")
