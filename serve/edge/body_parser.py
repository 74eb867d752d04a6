"""Parses JSON bodies without blocking the event loop for long."""

from dragoman.serve.edge.bodies import Body, parse_body
from dragoman.serve.edge.value_limit import check_json
from dragoman.serve.translation.large_work import run_part

# Is parsed in less than a millisecond.
SMALL_BODY_BYTES = 1 << 16


class BodyParser:
    """Parses bodies of up to `max_values` values: small ones at once, large ones one after the other in a thread."""

    def __init__(self, max_values: int) -> None:
        self.max_values = max_values

    async def parse(self, data: bytes, kind: type[Body], deadline_seconds: float) -> Body:
        """Parses and validates a body.

        Raises:
            InvalidRequestError: names the field, or `body` if the body is not JSON or has too many values.
            DeadlineExceededError: if a large body waits for the thread until the deadline.
        """
        if len(data) <= SMALL_BODY_BYTES:
            return self._parse(data, kind)
        return await run_part(deadline_seconds, self._parse, data, kind)

    def _parse(self, data: bytes, kind: type[Body]) -> Body:
        check_json(data, self.max_values)
        return parse_body(data, kind)
