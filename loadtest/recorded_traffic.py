"""Recorded traffic to be sent again: when each request came and, if it was recorded, what it asked.

A trace is a UTF-8 file with a request on each line: a number, its time in seconds from any origin, or a JSON object
with `seconds` and optionally `text` and `options`, named as in a request to the server. Called by
`loadtest.scenario`.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from loadtest.search_options import SearchOptions


class TracedRequest(BaseModel):
    """A request that once came."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = Field(allow_inf_nan=False, description="When it came, from any origin.")
    text: tuple[str, ...] | None = Field(None, min_length=1, description="Its texts; else sentences are drawn.")
    options: SearchOptions | None = Field(None, description="How it was searched; else as its kind says.")


_LINE: TypeAdapter[float | TracedRequest] = TypeAdapter(float | TracedRequest)


def read_trace(path: Path) -> list[TracedRequest]:
    """Returns the requests of a trace in the order of their times.

    Raises:
        OSError: if the file cannot be read.
        ValueError: naming the line that is no request, or if there is none.
    """
    requests = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            parsed = _LINE.validate_json(line)
        except ValidationError as error:
            raise ValueError(f"line {number}: expected seconds or an object: {error.errors()[-1]['msg']}") from error
        requests.append(parsed if isinstance(parsed, TracedRequest) else TracedRequest(seconds=parsed))
    if not requests:
        raise ValueError("expected at least one request")
    return sorted(requests, key=lambda request: request.seconds)
