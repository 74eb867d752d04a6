"""REST bodies of the Open Inference Protocol: JSON with tensors, and binary tensors after the JSON.

Responses are pydantic models, which define both the JSON and the OpenAPI schema.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, FailFast, Field

from dragoman.serve.compat.open_inference import protocol
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.translation.fields import Fields


class Live(BaseModel):
    """Whether the process responds and no model hangs."""

    live: bool


class Ready(BaseModel):
    """Whether all models can translate now."""

    ready: bool


class ModelReady(BaseModel):
    """Whether one model can translate now."""

    name: str
    ready: bool


class Server(BaseModel):
    """Name, version and extensions of the server."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """Name, datatype and shape of a tensor; size -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """Versions, inputs and outputs of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ConfiguredTensor(BaseModel):
    """A tensor in Triton's model configuration."""

    name: str
    data_type: str
    dims: list[int]


class ModelConfig(BaseModel):
    """The supported part of Triton's model configuration."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[ConfiguredTensor]
    output: list[ConfiguredTensor]
    model_transaction_policy: dict[str, bool]


class IndexedModel(BaseModel):
    """A model and its state."""

    name: str
    version: str
    state: str
    reason: str


class AnsweredTensor(BaseModel):
    """A tensor; without `data`, its elements are in the bytes after the JSON."""

    name: str
    shape: list[int]
    datatype: str
    data: list[str | int | float] | None = None
    parameters: dict[str, int] | None = None


class InferAnswer(BaseModel):
    """The translations, and the timings in seconds."""

    id: str | None = None
    model_name: str
    model_version: str
    parameters: dict[str, float]
    outputs: list[AnsweredTensor]


class GeneratedAnswer(BaseModel):
    """The translation of one text."""

    id: str | None = None
    model_name: str
    model_version: str
    text_output: str
    score: float
    normalized_score: float
    finish_reason: str
    source_tokens: int
    target_tokens: int


class ErrorAnswer(BaseModel):
    """The invalid value and the expected one."""

    error: str


BINARY_SIZE = "binary_data_size"
BINARY = "binary_data"
ALL_BINARY = "binary_data_output"

_INPUT_FIELD = "inputs[0]"

Notes = dict[str, Any]
NO_NOTES: Notes = Field({}, description="Parameters by name.")


def _check_unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"expected valid Unicode, without a lone surrogate at character {error.start}") from error
    return text


RequestId = Annotated[str, AfterValidator(_check_unicode), Field(description="Id that the response copies.")]


class InputTensor(Fields):
    """The tensor with the texts."""

    name: str = Field(description=f"`{protocol.TEXT_INPUT}`.")
    shape: Annotated[list[int], FailFast()] = Field(description="[n] or [n, 1], for n texts.")
    datatype: str = Field(description="`BYTES`.")
    parameters: Notes = NO_NOTES
    data: list[Any] | None = Field(
        None, description="The texts, flat or in rows of one; absent if they are bytes after the JSON."
    )


class OutputTensor(Fields):
    """A tensor that the response includes."""

    name: str = Field(description="Its name.")
    parameters: Notes = NO_NOTES


class InferBody(Fields):
    """The body of `POST /v2/models/MODEL/infer`."""

    id: RequestId = ""
    parameters: Notes = NO_NOTES
    inputs: Annotated[list[InputTensor], FailFast()] = Field(description="The tensor with the texts.")
    outputs: Annotated[list[OutputTensor], FailFast()] = Field([], description="Tensors of the response; empty: all.")


class GenerateBody(Fields):
    """The body of `POST /v2/models/MODEL/generate` and its stream."""

    id: RequestId = ""
    text_input: str = Field(description="One text.")
    parameters: Notes = NO_NOTES


class IndexBody(Fields):
    """The body of `POST /v2/repository/index`, which may be absent."""

    ready: bool = Field(False, description="Whether to leave out models that are not ready.")


def split_json(data: bytes, json_bytes: int | None) -> tuple[bytes, bytes]:
    """Splits a body into its JSON of length `json_bytes` and the bytes after it; None: the whole body is JSON.

    Raises:
        InvalidRequestError: if the body is shorter.
    """
    end = len(data) if json_bytes is None else json_bytes
    if end > len(data):
        raise InvalidRequestError("inference-header-content-length", f"{end}, expected at most {len(data)}")
    return data[:end], data[end:]


class TensorRequest:
    """A validated request with tensors; `outputs` are the names of the tensors in the response.

    Raises:
        InvalidRequestError: names the first invalid field.
    """

    def __init__(self, body: InferBody, behind: bytes, max_texts: int) -> None:
        """Validates the tensors; `behind` holds the bytes after the JSON, with at most `max_texts` texts."""
        self.body = body
        if len(body.inputs) != 1:
            raise InvalidRequestError("inputs", f"{len(body.inputs)} tensors, expected 1, {protocol.TEXT_INPUT!r}")
        tensor = body.inputs[0]
        protocol.check_text_input(tensor.name, tensor.datatype, _INPUT_FIELD)
        protocol.check_tensor_parameters(tensor.parameters, _INPUT_FIELD)
        self.texts = _read_texts(tensor, behind, max_texts)
        protocol.check_shape(tensor.shape, len(self.texts), _INPUT_FIELD)
        for index, output in enumerate(body.outputs):
            protocol.check_tensor_parameters(output.parameters, f"outputs[{index}]")
        self.outputs = protocol.check_outputs([output.name for output in body.outputs])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the input tensor."""
        return tuple(self.body.inputs[0].shape)

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the translation, without those of the response format."""
        return {name: value for name, value in self.body.parameters.items() if name != ALL_BINARY}

    def returns_bytes(self, name: str) -> bool:
        """Whether an output tensor is returned as bytes."""
        default = self.body.parameters.get(ALL_BINARY, False)
        notes = next((output.parameters for output in self.body.outputs if output.name == name), {})
        return notes.get(BINARY, default) is True


def write_answer(inferred: protocol.Inferred, request: TensorRequest) -> tuple[dict[str, Any], bytes]:
    """Returns the JSON of a response, and the bytes after it."""
    outputs: list[dict[str, Any]] = []
    behind: list[bytes] = []
    for tensor in inferred.tensors:
        output: dict[str, Any] = {"name": tensor.name, "shape": list(tensor.shape), "datatype": tensor.datatype}
        if request.returns_bytes(tensor.name):
            behind.append(tensor.pack())
            output["parameters"] = {BINARY_SIZE: len(behind[-1])}
        else:
            output["data"] = list(tensor.elements)
        outputs.append(output)
    return {**_identity(inferred), "parameters": inferred.seconds, "outputs": outputs}, b"".join(behind)


def write_generated(inferred: protocol.Inferred) -> dict[str, Any]:
    """Returns the JSON of a response with one text; every tensor is a field."""
    return {**_identity(inferred), **dict(_single_elements(inferred.tensors))}


def _identity(inferred: protocol.Inferred) -> dict[str, str]:
    named = {"id": inferred.request_id} if inferred.request_id else {}
    return {**named, "model_name": inferred.model, "model_version": inferred.version}


def _single_elements(tensors: Iterable[protocol.Tensor]) -> Iterator[tuple[str, Any]]:
    for tensor in tensors:
        (element,) = tensor.elements
        yield tensor.name, element


def _read_texts(tensor: InputTensor, behind: bytes, max_texts: int) -> list[str]:
    size = tensor.parameters.get(BINARY_SIZE)
    if size is None:
        if behind:
            raise InvalidRequestError("body", f"{len(behind)} bytes after the JSON, expected none")
        if tensor.data is None:
            raise InvalidRequestError(f"{_INPUT_FIELD}.data", "missing, expected a list of texts")
        return [_read_text(element, f"{_INPUT_FIELD}.data[{index}]") for index, element in enumerate(tensor.data)]
    if tensor.data is not None:
        raise InvalidRequestError(f"{_INPUT_FIELD}.data", f"given, expected none together with {BINARY_SIZE}")
    if isinstance(size, bool) or not isinstance(size, int) or size != len(behind):
        problem = f"expected {len(behind)}, the number of bytes after the JSON"
        raise InvalidRequestError(f"{_INPUT_FIELD}.parameters.{BINARY_SIZE}", problem)
    return protocol.unpack_texts(behind, "body", max_texts)


def _read_text(element: object, field: str) -> str:
    if isinstance(element, list) and len(element) == 1:
        (element,) = element
    if not isinstance(element, str):
        raise InvalidRequestError(field, "expected a string or a list of one string")
    return element
