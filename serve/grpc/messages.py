"""gRPC messages of the translation service: parses requests and builds responses.

gRPC rejects malformed bytes with "Exception deserializing request!" and no reason. The usual cause is a text that is
not UTF-8; the parsers here find the field and name it in the error.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from dragoman.protos import translation_pb2
from dragoman.protos.translation_pb2 import TranslateManyRequest
from dragoman.serve.edge.value_limit import check_message, read_fields
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.grpc.message_mapper import message_writer, set_fields
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.request import ScoreRequest, TranslateRequest

AnyRequest = TypeVar("AnyRequest", bound=Message)
# Requests without texts that are kept, and their bytes.
KNOWN_RESTS = 256
SMALL_BYTES = 512


class RequestParser(Generic[AnyRequest]):
    """Parses requests of one message class, with at most `max_values` values."""

    def __init__(self, kind: type[AnyRequest], max_values: int) -> None:
        self._kind = kind
        self._max_values = max_values

    def parse(self, data: bytes) -> AnyRequest | InvalidRequestError:
        """Returns the message, or the error to respond with. gRPC would replace a raised error by its own."""
        try:
            check_message(data, self._kind, self._max_values)
            return self._kind.FromString(data)
        except InvalidRequestError as error:
            return error
        except DecodeError:
            no_message = InvalidRequestError("request", f"not a {self._kind.DESCRIPTOR.full_name} message")
            return _find_invalid_text(data, self._kind.DESCRIPTOR, 0, len(data)) or no_message


@dataclass(slots=True)
class Item:
    """One message of a stream of requests: its id, its texts, the bytes of the rest, or its error, and its targets."""

    id: str
    texts: Sequence[str]
    rest: bytes | InvalidRequestError
    targets: int = 0


class ItemParser:
    """Parses the messages of a stream of requests."""

    def __init__(self, max_values: int) -> None:
        self._parser = RequestParser(TranslateManyRequest, max_values)

    def parse(self, data: bytes) -> Item:
        """Returns the item; a malformed item keeps its id if the id is its first field, as clients write it."""
        message = self._parser.parse(data)
        if not isinstance(message, InvalidRequestError):
            item_id, texts = message.id, list(message.request.text)
            message.ClearField("id")
            message.request.ClearField("text")
            return Item(item_id, texts, message.SerializeToString(), len(message.request.target_languages))
        # Errors name the same fields as Translate.
        error = InvalidRequestError(message.field.removeprefix("request."), message.problem)
        return Item(_find_id(data), (), error)


def _find_id(data: bytes) -> str:
    """Returns the id of a malformed item, if it precedes the request."""
    number, start, end = next(read_fields(data, 0, len(data)), (0, 0, 0))
    return data[start:end].decode(errors="replace") if number == TranslateManyRequest.ID_FIELD_NUMBER else ""


def _find_invalid_text(
    data: bytes, descriptor: Any, start: int, end: int, parent: str = ""
) -> InvalidRequestError | None:
    """Returns the error of the first string that is not UTF-8, as in `text[2]` and `pairs[1].translation`."""
    counts = Counter[str]()
    for number, value_start, value_end in read_fields(data, start, end):
        field = descriptor.fields_by_number.get(number)
        if field is None:
            continue
        name = f"{parent}{field.name}[{counts[field.name]}]" if field.is_repeated else f"{parent}{field.name}"
        counts[field.name] += 1
        if field.type == field.TYPE_STRING:
            try:
                data[value_start:value_end].decode()
            except UnicodeDecodeError as error:
                return InvalidRequestError(name, f"not valid UTF-8 at byte {error.start}")
        elif field.message_type is not None:
            found = _find_invalid_text(data, field.message_type, value_start, value_end, f"{name}.")
            if found is not None:
                return found
    return None


def read_translate_request(
    message: translation_pb2.TranslateRequest, deadline_seconds: float | None
) -> TranslateRequest:
    """Converts a message, which loses its texts; raises InvalidRequestError for its first invalid option."""
    texts = list(message.text) or ()
    message.ClearField("text")
    rest = message.SerializeToString()
    read = _read_rest if len(rest) <= SMALL_BYTES else _read_rest.__wrapped__
    return read(rest)._replace(text=texts, deadline_seconds=deadline_seconds)


def read_item(rest: bytes) -> tuple[TranslateRequest, float | None]:
    """Returns the request of an item, without its texts, and its timeout in seconds.

    Raises InvalidRequestError if the timeout or an option is invalid.
    """
    return (_read_item if len(rest) <= SMALL_BYTES else _read_item.__wrapped__)(rest)


@lru_cache(KNOWN_RESTS)
def _read_item(data: bytes) -> tuple[TranslateRequest, float | None]:
    message = TranslateManyRequest.FromString(data)
    seconds = message.timeout_seconds if message.HasField("timeout_seconds") else None
    if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
        raise InvalidRequestError("timeout_seconds", f"{seconds}, expected a finite number above 0")
    return _read_request(message.request), seconds


@lru_cache(KNOWN_RESTS)
def _read_rest(data: bytes) -> TranslateRequest:
    """Returns a request without texts; most requests of a client are alike but for these."""
    return _read_request(translation_pb2.TranslateRequest.FromString(data))


def _read_request(message: translation_pb2.TranslateRequest) -> TranslateRequest:
    fields = set_fields(message)
    if "options" in fields:
        fields["options"] = SearchFields.parse(set_fields(message.options))
    if "terms" in fields:
        fields["terms"] = [Entry.of(term.source, term.targets, match_case=term.match_case) for term in message.terms]
    return TranslateRequest(**fields)


def read_score_request(message: translation_pb2.ScoreRequest, deadline_seconds: float | None) -> ScoreRequest:
    """Converts a message to a request."""
    pairs = [(pair.text, pair.translation) for pair in message.pairs]
    return ScoreRequest(**{**set_fields(message), "pairs": pairs}, deadline_seconds=deadline_seconds)


translate_response = message_writer(translation_pb2.TranslateResponse)
target_message = message_writer(translation_pb2.TargetTranslations)
detect_response = message_writer(translation_pb2.DetectResponse)
score_response = message_writer(translation_pb2.ScoreResponse)
model_message = message_writer(translation_pb2.Model)
model_list = message_writer(translation_pb2.ListModelsResponse)
translation_message = message_writer(translation_pb2.Translation)
alternative_message = message_writer(translation_pb2.Alternative)
score_message = message_writer(translation_pb2.TranslationScore)
delta_message = message_writer(translation_pb2.TranslationDelta)
