"""Arguments, deadlines and messages of the clients."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Protocol, TypedDict

from grpc import StatusCode

from dragoman.protos import translation_pb2
from dragoman.serve.clients.errors import TooLateError, target_error
from dragoman.serve.grpc.message_mapper import message_reader
from dragoman.serve.local.options import RequestFields
from dragoman.serve.translation.detection import DetectResponse
from dragoman.serve.translation.response import ScoreResponse, TranslationDelta, TranslationResponse


class HasTimeRemaining(Protocol):
    """A call that is being served: the context of any gRPC handler."""

    def time_remaining(self) -> float | None:
        """Returns the time to the deadline in seconds; None: no deadline."""


class Timing(TypedDict, total=False):
    """The time limits of a call. The shortest one applies, or the client's default if there is none.

    Keys:
        timeout_seconds: limit from now on, retries included.
        deadline_seconds: time on the clock of `time.monotonic`.
        call: the context of a call being served, whose deadline this call inherits.
    """

    timeout_seconds: float
    deadline_seconds: float
    call: HasTimeRemaining


class Asking(RequestFields, Timing, total=False):
    """The arguments of a call.

    Keys:
        target_languages: several targets in place of `target_language`; the response then has `targets`.
        target_prefix: start of each translation, one per text; empty: none.
    """

    target_languages: Sequence[str]
    target_prefix: Sequence[str]


def choose_deadline(timing: Timing, default_timeout_seconds: float | None) -> float | None:
    """Returns the deadline of a call that starts now, on the clock of `time.monotonic`; None: none."""
    now_seconds = time.monotonic()
    given = [timing["deadline_seconds"]] if "deadline_seconds" in timing else []
    timeouts = [timing["timeout_seconds"]] if "timeout_seconds" in timing else []
    if "call" in timing and (remaining_seconds := timing["call"].time_remaining()) is not None:
        timeouts.append(remaining_seconds)
    given += [now_seconds + seconds for seconds in timeouts]
    if not given and default_timeout_seconds is not None:
        given = [now_seconds + default_timeout_seconds]
    return min(given, default=None)


def time_left(deadline_seconds: float | None) -> float | None:
    """Returns the time to the deadline in seconds; raises TooLateError if the deadline has passed."""
    if deadline_seconds is None:
        return None
    seconds = deadline_seconds - time.monotonic()
    if seconds <= 0:
        raise TooLateError(StatusCode.DEADLINE_EXCEEDED, "the deadline passed before the call")
    return seconds


Texts = str | Sequence[str]


def request_fields(texts: Texts, asking: RequestFields) -> dict[str, Any]:
    """Returns the fields of a request, as named by gRPC and REST."""
    fields = {name: value for name, value in asking.items() if name not in Timing.__annotations__}
    if "options" in asking:
        # Unset options keep the server's defaults, which may be newer than those of this client.
        fields["options"] = asking["options"].model_dump(exclude_unset=True)
    if "terms" in asking:
        fields["terms"] = [asdict(term) for term in asking["terms"]]
    return {**fields, "text": [texts] if isinstance(texts, str) else texts}


def translate_request(texts: Texts, asking: Asking) -> translation_pb2.TranslateRequest:
    """Returns the message for the translation of one or several texts."""
    return translation_pb2.TranslateRequest(**request_fields(texts, asking))


def score_request(pairs: Iterable[tuple[str, str]], asking: Asking) -> translation_pb2.ScoreRequest:
    """Returns the message for the scores of pairs of text and translation."""
    return translation_pb2.ScoreRequest(
        pairs=[translation_pb2.TextPair(text=text, translation=translation) for text, translation in pairs],
        source_language=asking.get("source_language", ""),
        target_language=asking.get("target_language", ""),
        model=asking.get("model", ""),
    )


_read_response = message_reader(translation_pb2.TranslateResponse, TranslationResponse)
read_detections = message_reader(translation_pb2.DetectResponse, DetectResponse)
read_scores = message_reader(translation_pb2.ScoreResponse, ScoreResponse)
_read_delta = message_reader(translation_pb2.TranslationDelta, TranslationDelta)


def read_translations(message: translation_pb2.TranslateResponse) -> TranslationResponse:
    """Returns the response in a message."""
    response = _read_response(message)
    for target, written in zip(response.targets or (), message.targets, strict=True):
        if target.error is not None:
            target.error = target_error(written.error)
    return response


def read_event(message: translation_pb2.TranslateStreamResponse) -> TranslationDelta | TranslationResponse:
    """Returns the event in a message of a stream."""
    if message.HasField("result"):
        return read_translations(message.result)
    return _read_delta(message.delta)
