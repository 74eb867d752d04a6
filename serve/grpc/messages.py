"""gRPC messages of the translation service: parses requests and builds responses.

gRPC rejects malformed bytes with "Exception deserializing request!" and no reason. The usual cause is a text that is
not UTF-8; the parsers here find the field and name it in the error.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.protos import translation_pb2
from dragoman.protos.translation_pb2 import TranslateManyRequest
from dragoman.serve.edge.value_limit import check_message, read_fields
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.grpc.message_mapper import message_writer, set_fields
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.registry.registry import ModelDescription
from dragoman.serve.scheduler.sequence import FairnessKey
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.request import ScoreRequest, TranslateRequest

AnyRequest = TypeVar("AnyRequest", bound=Message)


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
            return self._explain(data)

    @cached_property
    def _twin(self) -> tuple[type[Message], set[str]]:
        return _bytes_twin(self._kind)

    def _explain(self, data: bytes) -> InvalidRequestError:
        no_message = InvalidRequestError("request", f"not a {self._kind.DESCRIPTOR.full_name} message")
        kind, strings = self._twin
        try:
            twin = kind.FromString(data)
        except DecodeError:
            return no_message
        for field, value in _byte_strings(twin, strings):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                return InvalidRequestError(field, f"not valid UTF-8 at byte {error.start}")
        return no_message


@dataclass(frozen=True, slots=True)
class Item:
    """One message of a stream of requests: its id, and the request or its error."""

    id: str
    message: TranslateManyRequest | InvalidRequestError


class ItemParser:
    """Parses the messages of a stream of requests."""

    def __init__(self, max_values: int) -> None:
        self._parser = RequestParser(TranslateManyRequest, max_values)

    def parse(self, data: bytes) -> Item:
        """Returns the item; a malformed item keeps its id if the id is its first field, as clients write it."""
        message = self._parser.parse(data)
        if not isinstance(message, InvalidRequestError):
            return Item(message.id, message)
        # Errors name the same fields as Translate.
        error = InvalidRequestError(message.field.removeprefix("request."), message.problem)
        return Item(_find_id(data), error)


def _find_id(data: bytes) -> str:
    """Returns the id of a malformed item, if it precedes the request."""
    number, start, end = next(read_fields(data, 0, len(data)), (0, 0, 0))
    return data[start:end].decode(errors="replace") if number == TranslateManyRequest.ID_FIELD_NUMBER else ""


def _bytes_twin(kind: type[Message]) -> tuple[type[Message], set[str]]:
    """Returns a copy of a message class with bytes in place of strings, which accepts text that is not UTF-8.

    It takes memory, and few servers need it. The second value holds the full names of the string fields in the original
    class.
    """
    file = FileDescriptorProto()
    kind.DESCRIPTOR.file.CopyToProto(file)
    strings: set[str] = set()
    for message in file.message_type:
        _loosen(message, file.package, strings)
    pool = DescriptorPool()  # its own pool: two files of one name cannot share a pool
    for imported in _imports(kind.DESCRIPTOR.file):
        pool.AddSerializedFile(imported.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(kind.DESCRIPTOR.full_name)), strings


def _loosen(message: DescriptorProto, parent: str, strings: set[str]) -> None:
    """Turns the string fields of a message into bytes fields and collects their names."""
    full_name = f"{parent}.{message.name}"
    # Keys of maps cannot be bytes; on the wire, a map is a list of entries.
    message.options.ClearField("map_entry")
    for field in message.field:
        if field.type == FieldDescriptorProto.TYPE_STRING:
            field.type = FieldDescriptorProto.TYPE_BYTES
            strings.add(f"{full_name}.{field.name}")
    for nested in message.nested_type:
        _loosen(nested, full_name, strings)


def _imports(file: Any) -> Iterator[FileDescriptor]:
    """Yields the imports of a file, dependencies first."""
    for imported in file.dependencies:
        yield from _imports(imported)
        yield imported


def _byte_strings(message: Message, strings: set[str], parent: str = "") -> Iterator[tuple[str, bytes]]:
    """Yields name and value of every string field, as in `text[2]` and `pairs[1].translation`."""
    for field, value in message.ListFields():
        name = f"{parent}{field.name}"
        named = (
            ((f"{name}[{index}]", item) for index, item in enumerate(value)) if field.is_repeated else [(name, value)]
        )
        for path, element in named:
            if field.full_name in strings:
                yield path, element
            elif field.type == field.TYPE_MESSAGE:
                yield from _byte_strings(element, strings, f"{path}.")


def read_translate_request(
    message: translation_pb2.TranslateRequest, deadline_seconds: float | None, fairness_key: FairnessKey | None = None
) -> TranslateRequest:
    """Converts a message to a request; raises InvalidRequestError with the first invalid option."""
    fields = set_fields(message)
    if "options" in fields:
        fields["options"] = SearchFields.parse(set_fields(message.options))
    if "terms" in fields:
        fields["terms"] = [Entry.of(term.source, term.targets, match_case=term.match_case) for term in message.terms]
    return TranslateRequest(**fields, deadline_seconds=deadline_seconds, fairness_key=fairness_key)


def read_score_request(message: translation_pb2.ScoreRequest, deadline_seconds: float | None) -> ScoreRequest:
    """Converts a message to a request."""
    pairs = [(pair.text, pair.translation) for pair in message.pairs]
    return ScoreRequest(**{**set_fields(message), "pairs": pairs}, deadline_seconds=deadline_seconds)


translate_response = message_writer(translation_pb2.TranslateResponse)
detect_response = message_writer(translation_pb2.DetectResponse)
score_response = message_writer(translation_pb2.ScoreResponse)
model_message = message_writer(translation_pb2.Model)
translation_message = message_writer(translation_pb2.Translation)
alternative_message = message_writer(translation_pb2.Alternative)
score_message = message_writer(translation_pb2.TranslationScore)
delta_message = message_writer(translation_pb2.TranslationDelta)


def model_list(models: Iterable[ModelDescription]) -> translation_pb2.ListModelsResponse:
    """Converts the models to a message."""
    return translation_pb2.ListModelsResponse(models=map(model_message, models))
