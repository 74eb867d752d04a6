"""Arguments and messages of the clients, and the state of a request stream.

A stream may break before every request is answered: a server shuts down, or a connection reaches its maximum age.
Unanswered requests are sent again on the next stream; translating a request twice is harmless.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypedDict

from protos import translation_pb2
from protos.translation_pb2 import ScoreRequest, TranslateManyRequest, TranslateManyResponse, TranslateRequest
from serve.api.message_mapper import message_reader
from serve.clients.errors import CallError, UnavailableError, status_error, too_late
from serve.translation.fields import SearchFields
from serve.translation.response import (
    ScoreResponse,
    TranslationDelta,
    TranslationResponse,
)


class Wanted(TypedDict, total=False):
    """The options of a translation; absent keys have the server's defaults.

    Keys:
        source_language, target_language: ISO 639-1 codes.
        options: search options; absent: greedy search.
        model: name of the model; absent: the first one with the direction.
        allow_pivot: translate through a third language if no model has the direction.
        split_sentences: translate sentence by sentence (the default).
    """

    source_language: str
    target_language: str
    options: SearchFields
    model: str
    allow_pivot: bool
    split_sentences: bool


def request_fields(text: str, wanted: Wanted) -> dict[str, Any]:
    """Returns the fields of a request for one text, as named by gRPC and REST."""
    options = wanted.get("options", SearchFields())
    return {**wanted, "text": [text], "options": options.model_dump(exclude_defaults=True)}


class HasTimeRemaining(Protocol):
    """A call that is being served: the context of any gRPC handler."""

    def time_remaining(self) -> float | None:
        """Returns the time to the deadline in seconds; None: no deadline."""


class Timing(TypedDict, total=False):
    """The time limits of a call. The shortest one holds; without any, the client's default.

    Keys:
        timeout_seconds: from now on, retries included.
        deadline_seconds: on the clock of `time.monotonic`.
        context: of a call being served, whose deadline this call inherits.
    """

    timeout_seconds: float
    deadline_seconds: float
    context: HasTimeRemaining


class Asking(Wanted, Timing, total=False):
    """The arguments of a call.

    Keys:
        target_prefix: start of each translation, one per text; empty: none.
    """

    target_prefix: Sequence[str]


def choose_deadline(timing: Timing, default_timeout_seconds: float | None) -> float | None:
    """Returns the deadline of a call that starts now, on the clock of `time.monotonic`; None: none."""
    now_seconds = time.monotonic()
    given = [timing["deadline_seconds"]] if "deadline_seconds" in timing else []
    timeouts = [timing["timeout_seconds"]] if "timeout_seconds" in timing else []
    if "context" in timing and (remaining_seconds := timing["context"].time_remaining()) is not None:
        timeouts.append(remaining_seconds)
    given += [now_seconds + seconds for seconds in timeouts]
    if not given and default_timeout_seconds is not None:
        given = [now_seconds + default_timeout_seconds]
    return min(given, default=None)


def time_left(deadline_seconds: float | None) -> float | None:
    """Returns the time to the deadline in seconds.

    Raises:
        TooLateError: if the deadline has passed.
    """
    if deadline_seconds is None:
        return None
    seconds = deadline_seconds - time.monotonic()
    if seconds <= 0:
        raise too_late()
    return seconds


Texts = str | Sequence[str]

_ASKED = ("source_language", "target_language", "model", "allow_pivot", "split_sentences", "target_prefix")


def translate_request(texts: Texts, asking: Asking) -> TranslateRequest:
    """Returns the message for the translation of one or several texts."""
    fields: dict[str, Any] = {name: value for name, value in asking.items() if name in _ASKED}
    if "options" in asking:
        # Unset options keep the server's defaults, which may be newer than those of this client.
        fields["options"] = asking["options"].model_dump(exclude_unset=True)
    return TranslateRequest(text=[texts] if isinstance(texts, str) else texts, **fields)


def score_request(pairs: Iterable[tuple[str, str]], asking: Asking) -> ScoreRequest:
    """Returns the message for the scores of pairs of text and translation."""
    return ScoreRequest(
        pairs=[translation_pb2.TextPair(text=text, translation=translation) for text, translation in pairs],
        source_language=asking.get("source_language", ""),
        target_language=asking.get("target_language", ""),
        model=asking.get("model", ""),
    )


read_translations = message_reader(translation_pb2.TranslateResponse, TranslationResponse)
read_scores = message_reader(translation_pb2.ScoreResponse, ScoreResponse)
_read_delta = message_reader(translation_pb2.TranslationDelta, TranslationDelta)


def read_event(message: translation_pb2.TranslateStreamResponse) -> TranslationDelta | TranslationResponse:
    """Returns the event in a message of a stream."""
    if message.HasField("result"):
        return read_translations(message.result)
    return _read_delta(message.delta)


# Streams in a row without any answer: the limit without and with the server's retry delay. A server that shuts down may
# ask for retries for a minute. Then the pauses between streams without a retry delay.
MAX_FRUITLESS_TRIES, MAX_INVITED_TRIES = 5, 60
FIRST_PAUSE_SECONDS, PAUSE_FACTOR = 0.1, 3.0
IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class ManyItem:
    """One request of a stream.

    Attributes:
        texts: answered together.
        asking: as for a single call. Of the time limits only `timeout_seconds` counts, from the server's receipt on.
        tag: any value of the caller.
    """

    texts: str | Sequence[str]
    asking: Asking = field(default_factory=Asking)
    tag: object = None


@dataclass(frozen=True, slots=True)
class ManyResult:
    """The result of one request of a stream: a response or an error."""

    item: ManyItem
    response: TranslationResponse | None = None
    error: CallError | None = None

    def get(self) -> TranslationResponse:
        """Returns the response.

        Raises:
            CallError: if the request failed.
        """
        if self.error is not None:
            raise self.error
        if self.response is None:
            raise AssertionError("neither a response nor an error")
        return self.response


class Unanswered:
    """The unanswered requests of a call, across its streams."""

    def __init__(self) -> None:
        self._numbers = count()
        self._items: dict[str, tuple[ManyItem, TranslateManyRequest]] = {}
        self._fruitless_tries = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def messages(self) -> list[TranslateManyRequest]:
        """The messages for a new stream, in the order of the requests."""
        return [message for _, message in self._items.values()]

    def add(self, item: ManyItem | str) -> TranslateManyRequest:
        """Adds a request and returns its message."""
        asked = ManyItem(item) if isinstance(item, str) else item
        message = TranslateManyRequest(
            id=str(next(self._numbers)),
            request=translate_request(asked.texts, asked.asking),
            timeout_seconds=asked.asking.get("timeout_seconds"),
        )
        self._items[message.id] = asked, message
        return message

    def take(self, answer: TranslateManyResponse) -> ManyResult:
        """Removes an answered request and returns its result."""
        item, _ = self._items.pop(answer.id)
        self._fruitless_tries = 0
        if answer.HasField("error"):
            return ManyResult(item, error=status_error(answer.error))
        return ManyResult(item, response=read_translations(answer.response))

    def pause_seconds(self, error: CallError, deadline_seconds: float | None, *, retries: bool) -> float:
        """Returns the pause in seconds before the next stream, given the error of the last one.

        Args:
            error: of the broken stream.
            deadline_seconds: of the call, on the clock of `time.monotonic`; None: none.
            retries: whether another stream is allowed.

        Raises:
            CallError: `error`, if another stream would not help.
        """
        # A stream that breaks without unanswered requests does not count as a failure.
        self._fruitless_tries += bool(self._items)
        pause_seconds = error.retry_after_seconds
        most_tries = MAX_FRUITLESS_TRIES if pause_seconds is None else MAX_INVITED_TRIES
        if not (retries and isinstance(error, UnavailableError)) or self._fruitless_tries >= most_tries:
            raise error
        if pause_seconds is None:
            pause_seconds = FIRST_PAUSE_SECONDS * PAUSE_FACTOR ** max(0, self._fruitless_tries - 1)
        if deadline_seconds is not None and time.monotonic() + pause_seconds >= deadline_seconds:
            raise error
        return pause_seconds
