"""gRPC messages to values and back: the search options of a request, the answers of a response, and the models.

Called by `serve.api.grpc_api` only. Decides nothing.

Bytes from the wire to a request message, or to an error that says what is wrong with them.

gRPC answers bytes that are no message with "Exception deserializing request!", which tells a client nothing. The usual
fault is a text that is not UTF-8, so this module finds the field. It is called by the handlers of the gRPC interface
only.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from protos import translation_pb2
from protos.translation_pb2 import TranslateManyRequest
from serve.errors import InvalidRequestError
from serve.registry.registry import ModelDescription, ModelState
from serve.search.hypothesis import FinishReason
from serve.translation.fields import SearchFields
from serve.translation.response import (
    Alternative,
    ScoreResponse,
    Timings,
    TokenScore,
    Translation,
    TranslationDelta,
    TranslationResponse,
)

AnyRequest = TypeVar("AnyRequest", bound=Message)


class RequestParser(Generic[AnyRequest]):
    """Parses requests of one kind."""

    def __init__(self, kind: type[AnyRequest]) -> None:
        """Keeps the class of the message and makes a twin of it.

        Args:
            kind: the class of the message.
        """
        self._kind = kind
        self._twin, self._strings = _bytes_twin(kind)

    def parse(self, data: bytes) -> AnyRequest | InvalidRequestError:
        """Returns the message, or the error to answer with.

        The error is returned because gRPC would replace a raised one by its own.
        """
        try:
            return self._kind.FromString(data)
        except DecodeError:
            return self._explain(data)

    def _explain(self, data: bytes) -> InvalidRequestError:
        no_message = InvalidRequestError("request", f"not a {self._kind.DESCRIPTOR.full_name} message")
        try:
            twin = self._twin.FromString(data)
        except DecodeError:
            return no_message
        for field, value in _byte_strings(twin, self._strings):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                return InvalidRequestError(field, f"not valid UTF-8 at byte {error.start}")
        return no_message


@dataclass(frozen=True, slots=True)
class Item:
    """One message of a stream of requests: what it is answered by, and what it asks or why it asks nothing."""

    id: str
    message: TranslateManyRequest | InvalidRequestError


class ItemParser:
    """Parses the messages of a stream of requests."""

    def __init__(self) -> None:
        self._parser = RequestParser(TranslateManyRequest)
        self._twin, _ = _bytes_twin(TranslateManyRequest)

    def parse(self, data: bytes) -> Item:
        """Returns the item; one that is wrong keeps its id, as far as there is one."""
        message = self._parser.parse(data)
        if not isinstance(message, InvalidRequestError):
            return Item(message.id, message)
        # Whatever else is wrong with a request is told in the words that Translate has for it.
        error = InvalidRequestError(message.field.removeprefix("request."), message.problem)
        return Item(self._find_id(data), error)

    def _find_id(self, data: bytes) -> str:
        try:
            twin: Any = self._twin.FromString(data)
        except DecodeError:
            return ""
        return str(twin.id, errors="replace")


def _bytes_twin(kind: type[Message]) -> tuple[type[Message], set[str]]:
    """Returns a message class like the given one, but with bytes in place of strings: it parses any bytes.

    With it come the full names of the fields that are strings in the given one.
    """
    file = FileDescriptorProto()
    kind.DESCRIPTOR.file.CopyToProto(file)
    strings: set[str] = set()
    for message in file.message_type:
        _loosen(message, file.package, strings)
    pool = DescriptorPool()  # of its own: two files of one name may not share a pool
    for imported in _imports(kind.DESCRIPTOR.file):
        pool.AddSerializedFile(imported.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(kind.DESCRIPTOR.full_name)), strings


def _loosen(message: DescriptorProto, parent: str, strings: set[str]) -> None:
    """Turns the strings of a message into bytes and notes their names."""
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
    """Yields what a file imports, each after its own imports."""
    for imported in file.dependencies:
        yield from _imports(imported)
        yield imported


def _byte_strings(message: Message, strings: set[str], parent: str = "") -> Iterator[tuple[str, bytes]]:
    """Yields name and value of every string, named as in `text[2]` and `pairs[1].translation`."""
    for field, value in message.ListFields():
        name = f"{parent}{field.name}"
        named = (
            ((f"{name}[{index}]", each) for index, each in enumerate(value)) if field.is_repeated else [(name, value)]
        )
        for path, element in named:
            if field.full_name in strings:
                yield path, element
            elif field.type == field.TYPE_MESSAGE:
                yield from _byte_strings(element, strings, f"{path}.")


_FINISH_REASONS = {
    None: translation_pb2.FINISH_REASON_UNSPECIFIED,
    FinishReason.EOS: translation_pb2.FINISH_REASON_EOS,
    FinishReason.LENGTH: translation_pb2.FINISH_REASON_LENGTH,
}
_MODEL_STATES = {
    ModelState.LOADING: translation_pb2.MODEL_STATE_LOADING,
    ModelState.READY: translation_pb2.MODEL_STATE_READY,
    ModelState.FAILED: translation_pb2.MODEL_STATE_FAILED,
}


def read_options(message: translation_pb2.SearchOptions) -> SearchFields:
    """Returns the options that a message sets; the two have the same names.

    Raises:
        InvalidRequestError: naming the first that is not valid.
    """
    set_fields = message.ListFields()
    return SearchFields.parse({field.name: list(value) if field.is_repeated else value for field, value in set_fields})


def translate_response(response: TranslationResponse) -> translation_pb2.TranslateResponse:
    """Returns the message of a response."""
    translations = map(_translation, response.translations)
    pivot = response.pivot
    return translation_pb2.TranslateResponse(
        translations=translations,
        timings=_timings(response.timings),
        model=response.model,
        pivot=None if pivot is None else translation_pb2.Pivot(language=pivot.language, model=pivot.model),
    )


def stream_response(event: TranslationDelta | TranslationResponse) -> translation_pb2.TranslateStreamResponse:
    """Returns the message of one event of a stream."""
    if isinstance(event, TranslationResponse):
        return translation_pb2.TranslateStreamResponse(result=translate_response(event))
    delta = translation_pb2.TranslationDelta(
        text_index=event.text_index,
        text=event.text,
        target_tokens=event.target_tokens,
        finish_reason=_FINISH_REASONS[event.finish_reason],
    )
    return translation_pb2.TranslateStreamResponse(delta=delta)


def score_response(response: ScoreResponse) -> translation_pb2.ScoreResponse:
    """Returns the message of a response."""
    scores = [
        translation_pb2.TranslationScore(
            score=each.score,
            tokens=_tokens(each.tokens),
            source_tokens=each.source_tokens,
            target_tokens=each.target_tokens,
            cached=each.cached,
        )
        for each in response.scores
    ]
    return translation_pb2.ScoreResponse(scores=scores, timings=_timings(response.timings), model=response.model)


def model_list(models: Iterable[ModelDescription]) -> translation_pb2.ListModelsResponse:
    """Returns the message of the models."""
    return translation_pb2.ListModelsResponse(models=map(model_message, models))


def model_message(model: ModelDescription) -> translation_pb2.Model:
    """Returns the message of a model."""
    return translation_pb2.Model(
        name=model.name,
        state=_MODEL_STATES[model.state],
        directions=[translation_pb2.Direction(**asdict(direction)) for direction in model.directions],
        precision=model.precision,
        alignments=model.alignments,
        manifest_sha256=model.manifest_sha256,
        limits=translation_pb2.ModelLimits(**asdict(model.limits)),
    )


def _translation(translation: Translation) -> translation_pb2.Translation:
    return translation_pb2.Translation(
        text=translation.text,
        score=translation.score,
        finish_reason=_FINISH_REASONS[translation.finish_reason],
        source_tokens=translation.source_tokens,
        target_tokens=translation.target_tokens,
        normalized_score=translation.normalized_score,
        alternatives=map(_alternative, translation.alternatives),
        tokens=_tokens(translation.tokens or ()),
        alignments=_alignments(translation),
        seed=translation.seed,
        cached=translation.cached,
        sentences=translation.sentences,
        cut_sentences=translation.cut_sentences,
    )


def _alternative(alternative: Alternative) -> translation_pb2.Alternative:
    return translation_pb2.Alternative(
        text=alternative.text,
        score=alternative.score,
        normalized_score=alternative.normalized_score,
        finish_reason=_FINISH_REASONS[alternative.finish_reason],
        target_tokens=alternative.target_tokens,
        tokens=_tokens(alternative.tokens or ()),
        alignments=_alignments(alternative),
    )


def _tokens(tokens: Iterable[TokenScore]) -> list[translation_pb2.TokenScore]:
    return [translation_pb2.TokenScore(piece=token.piece, log_probability=token.log_probability) for token in tokens]


def _alignments(found: Alternative) -> list[translation_pb2.AlignmentRow]:
    return [translation_pb2.AlignmentRow(weights=weights) for weights in found.alignments or ()]


def _timings(timings: Timings) -> translation_pb2.Timings:
    return translation_pb2.Timings(**timings.by_name)
