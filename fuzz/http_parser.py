"""HTTP/1.1: the parser refuses bytes with a status, and pieces of them mean the same as the whole."""

from dragoman.serve.http.parser import MAX_HEADER_BYTES, MAX_TARGET_BYTES, BoundedParser

# The parser bounds what one piece brings: the refusal of longer input depends on the pieces.
MAX_BYTES = MAX_TARGET_BYTES
STATUSES = (400, 414, 431, 501, 505)


class _Connection(BoundedParser):
    """Records the headers, bodies and ends of requests."""

    def __init__(self) -> None:
        super().__init__()
        self.events = list[object]()

    def begin_header(self) -> None:
        """Begins a request."""

    def begin_request(self, method: bytes, version: str, *, keep_alive: bool) -> None:
        """Records a header."""
        assert self.header_bytes <= MAX_HEADER_BYTES
        self.events += [(method, self.target, version, keep_alive, self.expects_continue, *self.headers), bytearray()]

    def add_body(self, data: bytes) -> None:
        """Adds to the body of the last request."""
        body = self.events[-1]
        assert isinstance(body, bytearray)
        body += data

    def end_request(self) -> None:
        """Completes the last request."""
        self.events.append("end")


def check(data: bytes) -> None:
    """Parses the bytes at once, and in pieces whose length is the first byte."""
    length, content = max(1, *data[:1], 1), data[1:MAX_BYTES]
    pieces = [content[start : start + length] for start in range(0, len(content), length)]
    assert _parse(pieces) == _parse([content])


def _parse(pieces: list[bytes]) -> tuple[list[object], int]:
    """Returns the events of a connection, and the status of the refusal that ends it, else 0."""
    connection = _Connection()
    refusal = next((found for piece in pieces if (found := connection.feed(piece))), None)
    connection.stop_parsing()
    assert refusal is None or refusal.status in STATUSES, refusal
    return connection.events, refusal.status if refusal else 0
