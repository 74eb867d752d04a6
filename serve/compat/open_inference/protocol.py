"""The Open Inference Protocol, version 2: the common part of its REST and gRPC forms.

Tensors with texts become translation requests; translations become tensors. As bytes, numbers are little-endian, and a
text is preceded by its length in four bytes. The parameters are the search options, the languages, and Triton's
priority and timeout. Errors name fields as in this protocol.
"""

import json
import struct
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from math import prod
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationError

from dragoman.serve.errors import InvalidRequestError, ModelNotFoundError
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.observability.usage import Timings
from dragoman.serve.registry.description import ModelState
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.registry.lifecycle import Lifecycle
from dragoman.serve.registry.registry import ModelRegistry, ServedModel
from dragoman.serve.translation.fields import OPTIONS, Fields, SearchFields, refusal
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import Translation, TranslationResponse

Datatype = Literal["BYTES", "FP64", "INT64"]
Element = str | float | int

TEXT_INPUT = "text_input"
TEXT_OUTPUT = "text_output"
INPUT_FIELD = "inputs[0]"
# Any number of texts. Input of shape [n, 1] gets output of shape [n, 1].
_SHAPE = [-1]

_UNSUPPORTED_PARAMETERS = ("classification", "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size")
_LENGTH = struct.Struct("<I")
_FORMATS = {"FP64": "d", "INT64": "q"}


# The datatypes of the output tensors by name, which is that of an attribute of a translation, except for the text.
OUTPUTS: dict[str, Datatype] = {
    TEXT_OUTPUT: "BYTES",
    "score": "FP64",
    "normalized_score": "FP64",
    "finish_reason": "BYTES",
    "source_tokens": "INT64",
    "target_tokens": "INT64",
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """An output tensor with its elements in row-major order."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    elements: tuple[Element, ...]

    def pack(self) -> bytes:
        """Returns the elements as bytes."""
        if self.datatype == "BYTES":
            texts = (str(element).encode() for element in self.elements)
            return b"".join(_LENGTH.pack(len(text)) + text for text in texts)
        return struct.pack(f"<{len(self.elements)}{_FORMATS[self.datatype]}", *self.elements)


def make_tensors(names: Iterable[str], translations: Sequence[Translation], shape: tuple[int, ...]) -> list[Tensor]:
    """Returns one tensor per name, each with the shape of the input."""
    tensors = []
    for name in names:
        read = attrgetter("text" if name == TEXT_OUTPUT else name)
        tensors.append(Tensor(name, OUTPUTS[name], shape, tuple(map(read, translations))))
    return tensors


class TensorRequest(NamedTuple):
    """The texts of a request, the shape of their tensor, and the names of the tensors of the response."""

    texts: list[str]
    shape: tuple[int, ...] = (1,)
    outputs: tuple[str, ...] = tuple(OUTPUTS)


def read_tensors(
    inputs: Sequence[Any], outputs: Sequence[Any], read_texts: Callable[[Any], list[str]]
) -> TensorRequest:
    """Returns the validated tensors of a request; without names of outputs, all are returned.

    Args:
        inputs: in either form of the protocol, with name, datatype, shape and parameters.
        outputs: the same, with name and parameters.
        read_texts: returns the texts of an input.

    Raises:
        InvalidRequestError: naming the first invalid field.
    """
    if len(inputs) != 1:
        raise InvalidRequestError("inputs", f"{len(inputs)} tensors, expected 1, {TEXT_INPUT!r}")
    (tensor,) = inputs
    for name, expected in (("name", TEXT_INPUT), ("datatype", "BYTES")):
        if (given := getattr(tensor, name)) != expected:
            raise InvalidRequestError(f"{INPUT_FIELD}.{name}", f"{given[:64]!r}, expected {expected!r}")
    _check_parameters(tensor.parameters, INPUT_FIELD)
    texts = read_texts(tensor)
    check_shape(tensor.shape, len(texts))
    names = [output.name for output in outputs]
    for index, output in enumerate(outputs):
        _check_parameters(output.parameters, f"outputs[{index}]")
    for index, name in enumerate(names):
        if name not in OUTPUTS:
            raise InvalidRequestError(f"outputs[{index}].name", f"{name[:64]!r}, expected one of {', '.join(OUTPUTS)}")
        if name in names[:index]:
            raise InvalidRequestError(f"outputs[{index}].name", f"{name!r}, expected each output once")
    return TensorRequest(texts, tuple(tensor.shape), tuple(names) or tuple(OUTPUTS))


def _check_parameters(names: Iterable[str], field: str) -> None:
    """Raises InvalidRequestError if tensor parameters request an unsupported extension; ignores other parameters."""
    for name in names:
        if name in _UNSUPPORTED_PARAMETERS:
            raise InvalidRequestError(
                f"{field}.parameters.{name}", "given, expected none: the extension is not supported"
            )


def check_shape(shape: Sequence[int], count: int) -> None:
    """Raises InvalidRequestError unless the shape is [n] or [n, 1] for `count` = n texts."""
    if len(shape) not in (1, 2) or list(shape[1:]) not in ([], [1]):
        shown = f"{list(shape[:4])}{'' if len(shape) <= len(shape[:4]) else ' and more'}"
        raise InvalidRequestError(f"{INPUT_FIELD}.shape", f"{shown}, expected [n] or [n, 1] for n texts")
    if prod(shape) != count:
        raise InvalidRequestError(f"{INPUT_FIELD}.shape", f"{list(shape)}, expected {count} elements, one per text")


def unpack_texts(data: bytes, field: str, max_texts: int) -> list[str]:
    """Returns the texts of a tensor; raises InvalidRequestError if bytes are malformed or there are too many texts."""
    texts: list[str] = []
    offset = 0
    while offset < len(data):
        if len(texts) == max_texts:
            raise InvalidRequestError(field, f"expected at most {max_texts} texts")
        start = offset + _LENGTH.size
        length = _LENGTH.unpack_from(data, offset)[0] if start <= len(data) else 0
        if start + length > len(data):
            raise InvalidRequestError(field, f"{len(data)} bytes, expected more: they end inside text {len(texts)}")
        texts.append(decode_text(data[start : start + length], len(texts)))
        offset = start + length
    return texts


def decode_text(data: bytes, index: int) -> str:
    """Returns the text at `index` of the input; raises InvalidRequestError if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{TEXT_INPUT}[{index}]", f"not valid UTF-8 at byte {error.start}") from error


PARAMETERS = "parameters"
MAX_TIMEOUT_MICROSECONDS = 3_600_000_000
# Enough for every number; a longer string is not parsed.
_MAX_NUMBER_CHARACTERS = 64
# A tensor has one translation per text, without further data.
_ONLY = {"hypotheses": 1, "token_scores": False, "alignments": None}


class Parameters(Fields):
    """Parameters of a request; those that are not fields here are search options."""

    source_language: str = Field("", description="ISO 639-1 code of the texts' language; may be empty if unambiguous.")
    target_language: str = Field("", description="ISO 639-1 code of the target language; may be empty if unambiguous.")
    allow_pivot: bool = Field(False, description="Whether to translate through a third language.")
    split_sentences: bool = Field(True, description="Whether to translate a text sentence by sentence.")
    stream: bool | None = Field(None, description="Whether the text arrives in parts, in several responses.")
    priority: int = Field(
        0, ge=0, le=1000, description="Queue priority: 0 and 1 are the highest; larger values wait longer."
    )
    timeout: int = Field(0, ge=0, le=MAX_TIMEOUT_MICROSECONDS, description="Timeout in microseconds; 0: none.")
    options: SearchFields = Field(SearchFields(), exclude=True)

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Returns the validated parameters; raises InvalidRequestError that names the first invalid one."""
        own = {name: value for name, value in values.items() if name in cls.model_fields and name != OPTIONS}
        others = {name: _number(value) for name, value in values.items() if name not in own}
        texts = ("source_language", "target_language")
        try:
            options = SearchFields.parse(others)
            parameters = {name: value if name in texts else _number(value) for name, value in own.items()}
            parsed = cls.model_validate({**parameters, OPTIONS: options})
        except InvalidRequestError as error:
            raise with_protocol_names(error) from error
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
        """The priority of the scheduler's queue, at most 0; higher values come first."""
        return 1 - max(self.priority, 1)


def with_protocol_names(error: InvalidRequestError) -> InvalidRequestError:
    """Returns an error with the field names of this protocol."""
    field = error.field
    if field.partition("[")[0] == "text":
        field = f"{TEXT_INPUT}{field.removeprefix('text')}"
    elif field.startswith(f"{OPTIONS}."):
        field = f"{PARAMETERS}.{field.removeprefix(f'{OPTIONS}.')}"
    elif field in Parameters.model_fields:
        field = f"{PARAMETERS}.{field}"
    return InvalidRequestError(field, error.problem)


def _number(value: object) -> Any:
    """Parses a string that holds a number or a boolean: some clients can send fractions only as strings."""
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
_CONFIGURED = {"BYTES": "TYPE_STRING", "FP64": "TYPE_FP64", "INT64": "TYPE_INT64"}
# Names and datatypes of the inputs, and of the outputs.
_TENSORS = (((TEXT_INPUT, "BYTES"),), tuple(OUTPUTS.items()))
# Prefix of the manifest's hash that identifies a bundle.
VERSION_CHARACTERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """A request.

    Attributes:
        version: version of the model; empty: the served one.
        request_id: id that the response copies.
        deadline_seconds: deadline on the clock of `time.monotonic`; None: no deadline.
    """

    model: str
    version: str
    request_id: str
    tensors: TensorRequest
    parameters: Parameters
    deadline_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """A response; `timings` is None in all but the last response of a stream."""

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
    """Status of a model; `state` is READY, LOADING or UNAVAILABLE, `reason` the cause if it is not READY."""

    name: str
    version: str
    state: str
    reason: str

    @property
    def ready(self) -> bool:
        """Whether the model can translate now."""
        return self.state == "READY"


class OpenInference:
    """Serves the requests of both forms. Descriptions are JSON, with the names of the messages of gRPC."""

    def __init__(self, dispatcher: Dispatcher, models: ModelRegistry, lifecycle: Lifecycle) -> None:
        self._dispatcher = dispatcher
        self._models = models
        self._lifecycle = lifecycle
        self.server = {"name": SERVER, "version": version("dragoman"), "extensions": list(EXTENSIONS)}

    @property
    def live(self) -> bool:
        """Whether the process responds and no model hangs."""
        return self._lifecycle.live

    @property
    def ready(self) -> bool:
        """Whether all models can translate now."""
        return self._lifecycle.unready_reason() is None

    def status(self, model: str, version: str) -> ModelStatus:
        """Returns the status of one model; raises ModelNotFoundError if the model or version does not exist."""
        return self._status(self._find(model, version))

    def index(self, *, ready: bool) -> list[dict[str, str]]:
        """Returns the status of every model, or if `ready` of those that are, in the order of their selection."""
        return [asdict(status) for status in map(self._status, self._models) if status.ready or not ready]

    def metadata(self, model: str, version: str) -> dict[str, Any]:
        """Returns version, inputs and outputs of a model; raises ModelNotFoundError as `status`."""
        status = self.status(model, version)
        inputs, outputs = (
            [{"name": tensor, "datatype": datatype, "shape": _SHAPE} for tensor, datatype in tensors]
            for tensors in _TENSORS
        )
        own = {"name": status.name, "versions": [status.version], "platform": PLATFORM}
        return {**own, "inputs": inputs, "outputs": outputs}

    def config(self, model: str, version: str) -> dict[str, Any]:
        """Returns the model's inputs and outputs in Triton's form; raises ModelNotFoundError as `status`."""
        inputs, outputs = (
            [{"name": tensor, "data_type": _CONFIGURED[datatype], "dims": _SHAPE} for tensor, datatype in tensors]
            for tensors in _TENSORS
        )
        own = {"name": self.status(model, version).name, "platform": PLATFORM, "backend": SERVER, "max_batch_size": 0}
        return {**own, "input": inputs, "output": outputs, "model_transaction_policy": {"decoupled": False}}

    async def infer(self, inference: Inference, record: RequestRecord) -> Inferred:
        """Translates all texts, or none; `record` receives model and response. Raises ServiceError if that fails."""
        if inference.parameters.stream:
            raise InvalidRequestError(f"{PARAMETERS}.stream", "true, expected false for a single response")
        served = self._find(inference.model, inference.version)
        try:
            response = await self._dispatcher.translate(_translate_request(inference), record)
        except InvalidRequestError as error:
            raise with_protocol_names(error) from error
        return _inferred(inference, served, response)

    async def stream(self, inference: Inference, record: RequestRecord) -> AsyncGenerator[Inferred]:
        """Yields the new parts of one text's translation, then a response with everything except the text.

        With the parameter `stream` false, yields one complete response. Raises ServiceError at any time.
        """
        if len(inference.tensors.texts) != 1:
            raise InvalidRequestError(TEXT_INPUT, f"{len(inference.tensors.texts)} texts, expected 1 in a stream")
        if inference.parameters.stream is False:
            yield await self.infer(inference, record)
            return
        served = self._find(inference.model, inference.version)
        try:
            async with aclosing(self._dispatcher.stream(_translate_request(inference), record)) as events:
                async for event in events:
                    if isinstance(event, TranslationResponse):
                        yield _inferred(inference, served, event, text="")
                    elif event.text:
                        yield _grown(inference, served, event.text)
        except InvalidRequestError as error:
            raise with_protocol_names(error) from error

    def _find(self, name: str, version: str) -> ServedModel:
        served = self._models.get(name)
        known = _version(served)
        if version not in ("", known):
            raise ModelNotFoundError(f"version: {version[:64]!r} of {name}, expected {known!r} or none")
        return served

    def _status(self, served: ServedModel) -> ModelStatus:
        fault = self._lifecycle.unready_reason() if self._lifecycle.leaving else served.fault()
        state = "READY" if fault is None else "LOADING" if served.state is ModelState.LOADING else "UNAVAILABLE"
        return ModelStatus(served.name, _version(served), state, "" if fault is None else str(fault))


def _version(served: ServedModel) -> str:
    return served.manifest_sha256[:VERSION_CHARACTERS]


def _translate_request(inference: Inference) -> TranslateRequest:
    parameters = inference.parameters
    deadline_seconds = inference.deadline_seconds
    if parameters.timeout:
        given_seconds = time.monotonic() + parameters.timeout / 1_000_000
        deadline_seconds = given_seconds if deadline_seconds is None else min(deadline_seconds, given_seconds)
    return TranslateRequest(
        text=inference.tensors.texts,
        source_language=parameters.source_language,
        target_language=parameters.target_language,
        model=inference.model,
        allow_pivot=parameters.allow_pivot,
        options=parameters.options,
        split_sentences=parameters.split_sentences,
        deadline_seconds=deadline_seconds,
        priority=parameters.engine_priority,
    )


def _inferred(
    inference: Inference, served: ServedModel, response: TranslationResponse, *, text: str | None = None
) -> Inferred:
    """Returns the response; `text` replaces the translated text."""
    translations = response.translations
    if text is not None:
        translations = tuple(replace(translation, text=text) for translation in translations)
    return Inferred(
        model=served.name,
        version=_version(served),
        request_id=inference.request_id,
        tensors=make_tensors(inference.tensors.outputs, translations, inference.tensors.shape),
        timings=response.timings,
    )


def _grown(inference: Inference, served: ServedModel, text: str) -> Inferred:
    wanted = TEXT_OUTPUT in inference.tensors.outputs
    tensors = [Tensor(TEXT_OUTPUT, "BYTES", inference.tensors.shape, (text,))] if wanted else []
    return Inferred(
        model=served.name, version=_version(served), request_id=inference.request_id, tensors=tensors, timings=None
    )
