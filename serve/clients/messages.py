"""Plain values to gRPC messages and back, for clients: the opposite of `serve.api.grpc_messages`.

The values are those that the service itself answers with. Used by both translation clients.

How a client wants one text translated: the keyword arguments of every client's methods.

All clients have the same ones, over gRPC, over REST and in this process. Knows no protocol.

What callers of the translation clients may say about one call, and how much time it has.

Knows no protocol.

Requests of a stream, seen by a client: what is on its way, what came of it, and what to send again.

A stream may break before everything is answered: a server shuts down, or a connection has lasted long enough. Whatever
has no answer then is sent again on the next stream; translating it twice does no harm. Knows messages, not channels.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypedDict

from protos import translation_pb2
from protos.translation_pb2 import ScoreRequest, TranslateManyRequest, TranslateManyResponse, TranslateRequest
from serve.clients.errors import CallError, UnavailableError, status_error, too_late
from serve.search.hypothesis import FinishReason
from serve.translation.fields import SearchFields
from serve.translation.response import (
    Alternative,
    Pivot,
    ScoreResponse,
    Timings,
    TokenScore,
    Translation,
    TranslationDelta,
    TranslationResponse,
    TranslationScore,
)


class Wanted(TypedDict, total=False):
    """What is absent is as in a request without it.

    Keys:
        source_language, target_language: ISO 639-1 codes; absent or empty: the model's.
        options: how translations are searched for; absent: greedily.
        model: name of the model; absent or empty: the first that has the direction.
        allow_pivot: whether to go by way of a third language where there is no direction; absent: no.
        split_sentences: whether to translate the text sentence by sentence; absent: yes.
    """

    source_language: str
    target_language: str
    options: SearchFields
    model: str
    allow_pivot: bool
    split_sentences: bool


def request_fields(text: str, wanted: Wanted) -> dict[str, Any]:
    """Returns the fields of a request for one text, as gRPC and REST name them; `options` is a dict of its own."""
    options = wanted.get("options", SearchFields())
    return {**wanted, "text": [text], "options": options.model_dump(exclude_defaults=True)}


class HasTimeRemaining(Protocol):
    """A call that is being served, and in whose name another service is asked: every context of a gRPC handler."""

    def time_remaining(self) -> float | None:
        """Returns the time to its deadline, in seconds; None: it has none."""


class Timing(TypedDict, total=False):
    """How long a call may take; the shortest counts, and if none is given, the client's default.

    Keys:
        timeout_seconds: from now on, retries included.
        deadline_seconds: until then, on the clock of `time.monotonic`.
        context: of a call in whose name this one is made; it has no more time than that.
    """

    timeout_seconds: float
    deadline_seconds: float
    context: HasTimeRemaining


class Asking(Wanted, Timing, total=False):
    """What is absent is as in a request without it.

    Keys:
        target_prefix: what each translation has to start with, one for each text; an empty one asks nothing.
    """

    target_prefix: Sequence[str]


def choose_deadline(timing: Timing, default_timeout_seconds: float | None) -> float | None:
    """Returns when a call that begins now has to be over, on the clock of `time.monotonic`; None: never."""
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
    """Returns how much time is left to a deadline, in seconds.

    Raises:
        TooLateError: if it is none: such a call need not be made.
    """
    if deadline_seconds is None:
        return None
    seconds = deadline_seconds - time.monotonic()
    if seconds <= 0:
        raise too_late()
    return seconds


Texts = str | Sequence[str]

_FINISH_REASONS = {
    translation_pb2.FINISH_REASON_EOS: FinishReason.EOS,
    translation_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
}
_ASKED = ("source_language", "target_language", "model", "allow_pivot", "split_sentences", "target_prefix")


def translate_request(texts: Texts, asking: Asking) -> TranslateRequest:
    """Returns the request for the translations of a text or several."""
    fields: dict[str, Any] = {name: value for name, value in asking.items() if name in _ASKED}
    if "options" in asking:
        # What is left out is the server's default, which may be newer than ours.
        fields["options"] = asking["options"].model_dump(exclude_unset=True)
    return TranslateRequest(text=[texts] if isinstance(texts, str) else texts, **fields)


def score_request(pairs: Iterable[tuple[str, str]], asking: Asking) -> ScoreRequest:
    """Returns the request for the scores of texts and their translations."""
    return ScoreRequest(
        pairs=[translation_pb2.TextPair(text=text, translation=translation) for text, translation in pairs],
        source_language=asking.get("source_language", ""),
        target_language=asking.get("target_language", ""),
        model=asking.get("model", ""),
    )


def read_translations(message: translation_pb2.TranslateResponse) -> TranslationResponse:
    """Returns the answer that a message holds."""
    pivot = Pivot(message.pivot.language, message.pivot.model) if message.HasField("pivot") else None
    return TranslationResponse(
        tuple(map(_translation, message.translations)), _timings(message.timings), message.model, pivot
    )


def read_event(message: translation_pb2.TranslateStreamResponse) -> TranslationDelta | TranslationResponse:
    """Returns the event of a stream that a message holds."""
    if message.HasField("result"):
        return read_translations(message.result)
    delta = message.delta
    return TranslationDelta(
        text_index=delta.text_index,
        text=delta.text,
        target_tokens=delta.target_tokens,
        finish_reason=_FINISH_REASONS.get(delta.finish_reason),
    )


def read_scores(message: translation_pb2.ScoreResponse) -> ScoreResponse:
    """Returns the answer that a message holds."""
    scores = tuple(
        TranslationScore(
            score=each.score,
            tokens=_tokens(each.tokens),
            source_tokens=each.source_tokens,
            target_tokens=each.target_tokens,
            cached=each.cached if each.HasField("cached") else None,
        )
        for each in message.scores
    )
    return ScoreResponse(scores, _timings(message.timings), message.model)


def _translation(message: translation_pb2.Translation) -> Translation:
    return Translation(
        **_found(message),
        source_tokens=message.source_tokens,
        alternatives=tuple(Alternative(**_found(each)) for each in message.alternatives),
        seed=message.seed if message.HasField("seed") else None,
        cached=message.cached if message.HasField("cached") else None,
        sentences=message.sentences,
        cut_sentences=message.cut_sentences,
    )


def _found(message: translation_pb2.Translation | translation_pb2.Alternative) -> dict[str, Any]:
    return {
        "text": message.text,
        "score": message.score,
        "normalized_score": message.normalized_score,
        "finish_reason": _FINISH_REASONS[message.finish_reason],
        "target_tokens": message.target_tokens,
        # Absent and empty look the same in a message.
        "tokens": _tokens(message.tokens) or None,
        "alignments": tuple(tuple(row.weights) for row in message.alignments) or None,
    }


def _tokens(messages: Iterable[translation_pb2.TokenScore]) -> tuple[TokenScore, ...]:
    return tuple(TokenScore(each.piece, each.log_probability) for each in messages)


def _timings(message: translation_pb2.Timings) -> Timings:
    return Timings(
        tokenize_seconds=message.tokenize_seconds,
        queue_seconds=message.queue_seconds,
        inference_seconds=message.inference_seconds,
        total_seconds=message.total_seconds,
    )


# Tries in a row that bring no answer at all; more if the server wants to be asked again, which may be shutting down for
# a minute before its connections lead elsewhere. And how long to wait before the next one if nobody says.
MAX_FRUITLESS_TRIES, MAX_INVITED_TRIES = 5, 60
FIRST_PAUSE_SECONDS, PAUSE_FACTOR = 0.1, 3.0
IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class ManyItem:
    """One request of a stream.

    Attributes:
        texts: one or several, which are answered together.
        asking: as for a single call; `timeout_seconds` runs from when the server has read the request, and is the only
            limit of time that it may have of its own.
        tag: whatever the caller wants to know it by.
    """

    texts: str | Sequence[str]
    asking: Asking = field(default_factory=Asking)
    tag: object = None


@dataclass(frozen=True, slots=True)
class ManyResult:
    """What became of one request of a stream: a response or an error.

    Attributes:
        item: the request itself.
    """

    item: ManyItem
    response: TranslationResponse | None = None
    error: CallError | None = None

    def get(self) -> TranslationResponse:
        """Returns the response.

        Raises:
            CallError: if there is none.
        """
        if self.error is not None:
            raise self.error
        if self.response is None:
            raise AssertionError("neither a response nor an error")
        return self.response


class Unanswered:
    """The requests of all streams of one call that have no answer yet."""

    def __init__(self) -> None:
        """Starts with none."""
        self._numbers = count()
        self._items: dict[str, tuple[ManyItem, TranslateManyRequest]] = {}
        self._fruitless_tries = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def messages(self) -> list[TranslateManyRequest]:
        """What to send on a new stream, in the order in which it was asked for."""
        return [message for _, message in self._items.values()]

    def add(self, item: ManyItem | str) -> TranslateManyRequest:
        """Returns the message of a request that is sent now."""
        asked = ManyItem(item) if isinstance(item, str) else item
        message = TranslateManyRequest(
            id=str(next(self._numbers)),
            request=translate_request(asked.texts, asked.asking),
            timeout_seconds=asked.asking.get("timeout_seconds"),
        )
        self._items[message.id] = asked, message
        return message

    def take(self, answer: TranslateManyResponse) -> ManyResult:
        """Returns what became of the request that is answered now."""
        item, _ = self._items.pop(answer.id)
        self._fruitless_tries = 0
        if answer.HasField("error"):
            return ManyResult(item, error=status_error(answer.error))
        return ManyResult(item, response=read_translations(answer.response))

    def pause_seconds(self, error: CallError, deadline_seconds: float | None, *, retries: bool) -> float:
        """Returns how long to wait before the next stream, given why the last one broke.

        Args:
            error: why.
            deadline_seconds: when everything has to be over, on the clock of `time.monotonic`; None: never.
            retries: whether there may be another stream.

        Raises:
            CallError: the same, if another stream would not help.
        """
        # A stream that broke while nothing was asked did not fail anybody.
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
