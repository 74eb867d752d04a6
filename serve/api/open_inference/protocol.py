"""The Open Inference Protocol, version 2: what its two forms, REST and gRPC, have in common.

Requests with tensors become requests for translations, which go to the dispatcher like all others; translations become
tensors. What a client asks about server and models is answered here as well. Built by `serve.service`.

Tensors of the Open Inference Protocol: texts that come in, and what a translation becomes on its way out.

As bytes, elements are little-endian, and a text is its length in four bytes and itself. Used by both forms of the
protocol; knows neither JSON nor messages.

Parameters of a request in the Open Inference Protocol: values by name, as numbers or as strings.

The protocol leaves open what there is; here it is every search option, the languages, and what Triton calls priority
and timeout. Errors that name fields of our own interfaces are told in the words of this one.
"""

import json
import struct
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib.metadata import version
from math import prod
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from serve.errors import InvalidRequestError, ModelNotFoundError
from serve.observability.logs import RequestRecord
from serve.registry.dispatcher import Dispatcher
from serve.registry.lifecycle import Lifecycle
from serve.registry.registry import ModelRegistry, ServedModel
from serve.translation.fields import OPTIONS, Fields, SearchFields, refusal
from serve.translation.request import AskedDirection, AskedTranslation
from serve.translation.response import Timings, Translation, TranslationResponse

Datatype = Literal["BYTES", "FP64", "INT64"]
Element = str | float | int

TEXT_INPUT = "text_input"
TEXT_OUTPUT = "text_output"
# Any number of texts; what a client sends as [n, 1] is answered as [n, 1].
SHAPE = (-1,)

_REFUSED_NOTES = ("classification", "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size")
_LENGTH = struct.Struct("<I")
_FORMATS = {"FP64": "d", "INT64": "q"}


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor that the model gives.

    Attributes:
        datatype: what its elements are.
        element: what a translation becomes.
    """

    name: str
    datatype: Datatype
    element: Callable[[Translation], Element]


OUTPUTS = {
    output.name: output
    for output in (
        Output(TEXT_OUTPUT, "BYTES", lambda translation: translation.text),
        Output("score", "FP64", lambda translation: translation.score),
        Output("normalized_score", "FP64", lambda translation: translation.normalized_score),
        Output("finish_reason", "BYTES", lambda translation: translation.finish_reason.value),
        Output("source_tokens", "INT64", lambda translation: translation.source_tokens),
        Output("target_tokens", "INT64", lambda translation: translation.target_tokens),
    )
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of an answer, with its elements row by row."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    elements: tuple[Element, ...]

    def pack(self) -> bytes:
        """Returns the elements as bytes."""
        if self.datatype == "BYTES":
            return b"".join(_packed(str(each).encode()) for each in self.elements)
        return struct.pack(f"<{len(self.elements)}{_FORMATS[self.datatype]}", *self.elements)


def make_tensors(names: Iterable[str], translations: Sequence[Translation], shape: tuple[int, ...]) -> list[Tensor]:
    """Returns one tensor for each name, in the shape of the input."""
    return [
        Tensor(name, OUTPUTS[name].datatype, shape, tuple(map(OUTPUTS[name].element, translations))) for name in names
    ]


def check_text_input(name: str, datatype: str, field: str) -> None:
    """Checks that a tensor is the one that the model takes.

    Raises:
        InvalidRequestError: if it is not.
    """
    if name != TEXT_INPUT:
        raise InvalidRequestError(f"{field}.name", f"{name[:64]!r}, expected {TEXT_INPUT!r}")
    if datatype != "BYTES":
        raise InvalidRequestError(f"{field}.datatype", f"{datatype[:64]!r}, expected 'BYTES'")


def check_notes(names: Iterable[str], field: str) -> None:
    """Checks that the parameters of a tensor ask for nothing that there is not; what else they say is not looked at.

    Raises:
        InvalidRequestError: if they do.
    """
    for name in names:
        if name in _REFUSED_NOTES:
            raise InvalidRequestError(f"{field}.parameters.{name}", "given, expected none: there is no such extension")


def check_shape(shape: Sequence[int], count: int, field: str) -> None:
    """Checks that a shape is [n] or [n, 1], for as many texts as there are.

    Raises:
        InvalidRequestError: if it is not.
    """
    if len(shape) not in (1, 2) or list(shape[1:]) not in ([], [1]):
        shown = f"{list(shape[:4])}{'' if len(shape) <= len(shape[:4]) else ' and more'}"
        raise InvalidRequestError(f"{field}.shape", f"{shown}, expected [n] or [n, 1] for n texts")
    if prod(shape) != count:
        raise InvalidRequestError(f"{field}.shape", f"{list(shape)}, expected {count} for as many texts")


def check_outputs(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the outputs that the answer is to have: every one, if the client names none.

    Raises:
        InvalidRequestError: if there is none of a name, or it is there twice.
    """
    for index, name in enumerate(names):
        if name not in OUTPUTS:
            raise InvalidRequestError(f"outputs[{index}].name", f"{name[:64]!r}, expected one of {', '.join(OUTPUTS)}")
        if name in names[:index]:
            raise InvalidRequestError(f"outputs[{index}].name", f"{name!r}, expected each output once")
    return tuple(names) or tuple(OUTPUTS)


def unpack_texts(data: bytes, field: str) -> list[str]:
    """Returns the texts of a tensor that came as bytes.

    Raises:
        InvalidRequestError: if the bytes end too early, or a text is not UTF-8.
    """
    texts: list[str] = []
    place = 0
    while place < len(data):
        start = place + _LENGTH.size
        length = _LENGTH.unpack_from(data, place)[0] if start <= len(data) else 0
        if start + length > len(data):
            raise InvalidRequestError(field, f"{len(data)} bytes end inside of text {len(texts)}")
        texts.append(decode_text(data[start : start + length], len(texts)))
        place = start + length
    return texts


def decode_texts(texts: Iterable[bytes]) -> list[str]:
    """Returns the texts of a tensor.

    Raises:
        InvalidRequestError: if one of them is not UTF-8.
    """
    return [decode_text(text, index) for index, text in enumerate(texts)]


def decode_text(data: bytes, index: int) -> str:
    """Returns one text of the input.

    Raises:
        InvalidRequestError: if it is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{TEXT_INPUT}[{index}]", f"not valid UTF-8 at byte {error.start}") from error


def _packed(text: bytes) -> bytes:
    return _LENGTH.pack(len(text)) + text


PARAMETERS = "parameters"
MAX_TIMEOUT_MICROSECONDS = 3_600_000_000
# Long enough for every number; what is longer is no number, and is not looked at.
_MAX_NUMBER_CHARACTERS = 64
# A tensor has one translation for each text, and nothing beside it.
_ONLY = {"hypotheses": 1, "token_scores": False, "alignments": False}


class Parameters(Fields):
    """What may be asked for beside search options."""

    source_language: str = Field("", description="ISO 639-1 code of the texts' language; may be empty where clear.")
    target_language: str = Field("", description="ISO 639-1 code of the wanted language; may be empty where clear.")
    allow_pivot: bool = Field(False, description="Whether to go by way of a third language.")
    split_sentences: bool = Field(True, description="Whether a text is translated sentence by sentence.")
    stream: bool | None = Field(None, description="Whether the text comes as it grows, in several answers.")
    priority: int = Field(
        0, ge=0, le=1000, description="1 is the highest, and the one of requests that ask for none; a larger one waits."
    )
    timeout: int = Field(
        0,
        ge=0,
        le=MAX_TIMEOUT_MICROSECONDS,
        description="Microseconds after which the client stops waiting; 0: it does not say.",
    )
    options: SearchFields = Field(SearchFields(), exclude=True)

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Returns the valid parameters.

        Raises:
            InvalidRequestError: naming the first that is not.
        """
        own = {name: value for name, value in values.items() if name in cls.model_fields and name != OPTIONS}
        others = {name: _number(value) for name, value in values.items() if name not in own}
        texts = ("source_language", "target_language")
        try:
            options = SearchFields.parse(others)
            parameters = {name: value if name in texts else _number(value) for name, value in own.items()}
            parsed = cls.model_validate({**parameters, OPTIONS: options})
        except InvalidRequestError as error:
            raise in_our_words(error) from error
        except ValidationError as error:
            raise refusal(error, PARAMETERS) from error
        for name, only in _ONLY.items():
            if getattr(options, name) != only:
                problem = (
                    f"{json.dumps(getattr(options, name))}, expected {json.dumps(only)}: there is no tensor for it"
                )
                raise InvalidRequestError(f"{PARAMETERS}.{name}", problem)
        return parsed

    @property
    def engine_priority(self) -> int:
        """The priority as the queue counts it: nobody comes before those that ask for none."""
        return 1 - max(self.priority, 1)


def in_our_words(error: InvalidRequestError) -> InvalidRequestError:
    """Returns an error that names its field as this protocol does."""
    field = error.field
    if field.partition("[")[0] == "text":
        field = f"{TEXT_INPUT}{field.removeprefix('text')}"
    elif field.startswith(f"{OPTIONS}."):
        field = f"{PARAMETERS}.{field.removeprefix(f'{OPTIONS}.')}"
    elif field in Parameters.model_fields:
        field = f"{PARAMETERS}.{field}"
    return InvalidRequestError(field, error.problem)


def _number(value: object) -> Any:
    """Returns the number or the truth value that a string spells: some clients can send fractions in no other way."""
    if isinstance(value, str) and len(value) <= _MAX_NUMBER_CHARACTERS:
        try:
            spelled = json.loads(value)
        except ValueError:
            return value
        if isinstance(spelled, bool | int | float):
            return spelled
    return value


SERVER = "dragoman"
PLATFORM = "onnx_onnxv1"
EXTENSIONS = ("binary_tensor_data", "generate", "model_configuration", "model_repository", "parameters")
# As much of the hash of a bundle's manifest as tells bundles apart.
VERSION_CHARACTERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """What a client asks for.

    Attributes:
        model: name of the model.
        version: of the model; empty: the one that is served.
        request_id: what the answer is to be called.
        texts: what to translate.
        shape: of the tensor that they came in.
        parameters: how.
        outputs: names of the tensors that the answer is to have.
        deadline_seconds: when the client stops waiting, on the clock of `time.monotonic`; None: it did not say.
    """

    model: str
    version: str
    request_id: str
    texts: list[str]
    shape: tuple[int, ...]
    parameters: Parameters
    outputs: tuple[str, ...]
    deadline_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """One answer.

    Attributes:
        model, version, request_id: whose it is.
        tensors: what there is.
        timings: where the time went; None: there is more to come.
    """

    model: str
    version: str
    request_id: str
    tensors: list[Tensor]
    timings: Timings | None

    @property
    def seconds(self) -> dict[str, float]:
        """The timings by name."""
        return {} if self.timings is None else self.timings.by_name


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A model as it is listed.

    Attributes:
        state: READY, LOADING or UNAVAILABLE.
        reason: why it is not ready.
    """

    name: str
    version: str
    state: str
    reason: str

    @property
    def ready(self) -> bool:
        """Whether it would translate now."""
        return self.state == "READY"


class OpenInference:
    """Answers requests of this protocol, in whichever form they come."""

    def __init__(self, dispatcher: Dispatcher, models: ModelRegistry, lifecycle: Lifecycle) -> None:
        """Keeps what it needs.

        Args:
            dispatcher: translates.
            models: what there is.
            lifecycle: knows whether the server lives and is ready.
        """
        self._dispatcher = dispatcher
        self._models = models
        self._lifecycle = lifecycle
        self.server_version = version("dragoman")

    @property
    def live(self) -> bool:
        """Whether the process answers and no model hangs."""
        return self._lifecycle.live

    @property
    def ready(self) -> bool:
        """Whether every model would translate now."""
        return self._lifecycle.unready_reason() is None

    def status(self, name: str, version: str = "") -> ModelStatus:
        """Tells about one model.

        Raises:
            ModelNotFoundError: if there is no such model or version.
        """
        return self._status(self._find(name, version))

    def statuses(self) -> list[ModelStatus]:
        """Tells about every model, in the order in which requests choose."""
        return list(map(self._status, self._models))

    async def infer(self, inference: Inference, record: RequestRecord) -> Inferred:
        """Translates every text, or none.

        Args:
            inference: what is asked for.
            record: gets the model and the answer.

        Raises:
            ServiceError: why there is no translation.
        """
        if inference.parameters.stream:
            raise InvalidRequestError(f"{PARAMETERS}.stream", "true, expected false where there is a single answer")
        served = self._find(inference.model, inference.version)
        try:
            response = await self._dispatcher.translate(_asked(inference), record)
        except InvalidRequestError as error:
            raise in_our_words(error) from error
        return _inferred(inference, served, response)

    async def stream(self, inference: Inference, record: RequestRecord) -> AsyncGenerator[Inferred]:
        """Yields what the translation of one text grows by, and at last everything but its text.

        If the client asks for no stream, this is one answer with all of it.

        Raises:
            ServiceError: why there is no translation, at any moment.
        """
        if len(inference.texts) != 1:
            raise InvalidRequestError(TEXT_INPUT, f"{len(inference.texts)} texts, expected 1 in a stream of its growth")
        if inference.parameters.stream is False:
            yield await self.infer(inference, record)
            return
        served = self._find(inference.model, inference.version)
        try:
            async with aclosing(self._dispatcher.stream(_asked(inference), record)) as events:
                async for event in events:
                    if isinstance(event, TranslationResponse):
                        yield _inferred(inference, served, event, text="")
                    elif event.text:
                        yield _grown(inference, served, event.text)
        except InvalidRequestError as error:
            raise in_our_words(error) from error

    def _find(self, name: str, version: str) -> ServedModel:
        served = self._models.get(name)
        known = _version(served)
        if version not in ("", known):
            raise ModelNotFoundError(f"version: {version[:64]!r} of {name}, expected {known!r} or none")
        return served

    def _status(self, served: ServedModel) -> ModelStatus:
        readiness = served.pipeline.readiness
        fault = self._lifecycle.unready_reason() if self._lifecycle.leaving else readiness.fault()
        state = (
            "READY" if fault is None else "LOADING" if readiness.healthy and not readiness.verified else "UNAVAILABLE"
        )
        return ModelStatus(served.name, _version(served), state, "" if fault is None else str(fault))


def _version(served: ServedModel) -> str:
    return served.manifest_sha256[:VERSION_CHARACTERS]


def _asked(inference: Inference) -> AskedTranslation:
    parameters = inference.parameters
    deadline_seconds = inference.deadline_seconds
    if parameters.timeout:
        given_seconds = time.monotonic() + parameters.timeout / 1_000_000
        deadline_seconds = given_seconds if deadline_seconds is None else min(deadline_seconds, given_seconds)
    return AskedTranslation(
        texts=inference.texts,
        direction=AskedDirection(
            model=inference.model,
            source_language=parameters.source_language,
            target_language=parameters.target_language,
            allow_pivot=parameters.allow_pivot,
        ),
        options=parameters.options,
        split_sentences=parameters.split_sentences,
        deadline_seconds=deadline_seconds,
        priority=parameters.engine_priority,
    )


def _inferred(
    inference: Inference, served: ServedModel, response: TranslationResponse, *, text: str | None = None
) -> Inferred:
    """Returns the answer, with another text than that of the translation if one is given."""
    translations = response.translations
    if text is not None:
        translations = tuple(replace(translation, text=text) for translation in translations)
    return Inferred(
        model=served.name,
        version=_version(served),
        request_id=inference.request_id,
        tensors=make_tensors(inference.outputs, translations, inference.shape),
        timings=response.timings,
    )


def _grown(inference: Inference, served: ServedModel, text: str) -> Inferred:
    wanted = TEXT_OUTPUT in inference.outputs
    tensors = [Tensor(TEXT_OUTPUT, "BYTES", inference.shape, (text,))] if wanted else []
    return Inferred(
        model=served.name, version=_version(served), request_id=inference.request_id, tensors=tensors, timings=None
    )
