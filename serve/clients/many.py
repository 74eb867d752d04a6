"""Requests of a stream, seen by a client: what is on its way, what came of it, and what to send again.

A stream may break before everything is answered: a server shuts down, or a connection has lasted long enough. Whatever
has no answer then is sent again on the next stream; translating it twice does no harm. Knows messages, not channels.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from protos.translation_pb2 import TranslateManyRequest, TranslateManyResponse
from serve.clients.asking import Asking
from serve.clients.errors import CallError, UnavailableError, status_error
from serve.clients.messages import read_translations, translate_request
from serve.translation.response import TranslationResponse

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
