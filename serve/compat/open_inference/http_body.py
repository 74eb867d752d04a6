"""REST bodies of the Open Inference Protocol: JSON with tensors, and binary tensors after the JSON."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, FailFast, Field

from dragoman.serve.compat.open_inference import protocol
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.translation.fields import Fields

BINARY_SIZE = "binary_data_size"
BINARY = "binary_data"
ALL_BINARY = "binary_data_output"


class ErrorAnswer(BaseModel):
    """The invalid value and the expected one."""

    error: str


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


def read_texts(tensor: InputTensor, behind: bytes, max_texts: int) -> list[str]:
    """Returns the texts of a tensor, which are JSON or the bytes after it; raises InvalidRequestError if malformed."""
    size = tensor.parameters.get(BINARY_SIZE)
    if size is None:
        if behind:
            raise InvalidRequestError("body", f"{len(behind)} bytes after the JSON, expected none")
        if tensor.data is None:
            raise InvalidRequestError(f"{protocol.INPUT_FIELD}.data", "missing, expected a list of texts")
        return [
            _read_text(element, f"{protocol.INPUT_FIELD}.data[{index}]") for index, element in enumerate(tensor.data)
        ]
    if tensor.data is not None:
        raise InvalidRequestError(f"{protocol.INPUT_FIELD}.data", f"given, expected none together with {BINARY_SIZE}")
    if isinstance(size, bool) or not isinstance(size, int) or size != len(behind):
        problem = f"expected {len(behind)}, the number of bytes after the JSON"
        raise InvalidRequestError(f"{protocol.INPUT_FIELD}.parameters.{BINARY_SIZE}", problem)
    return protocol.unpack_texts(behind, "body", max_texts)


def _returns_bytes(body: InferBody, name: str) -> bool:
    default = body.parameters.get(ALL_BINARY, False)
    notes = next((output.parameters for output in body.outputs if output.name == name), {})
    return notes.get(BINARY, default) is True


def write_answer(inferred: protocol.Inferred, body: InferBody) -> tuple[dict[str, Any], bytes]:
    """Returns the JSON of a response, and the bytes after it."""
    outputs: list[dict[str, Any]] = []
    behind: list[bytes] = []
    for tensor in inferred.tensors:
        output: dict[str, Any] = {"name": tensor.name, "shape": list(tensor.shape), "datatype": tensor.datatype}
        if _returns_bytes(body, tensor.name):
            behind.append(tensor.pack())
            output["parameters"] = {BINARY_SIZE: len(behind[-1])}
        else:
            output["data"] = list(tensor.elements)
        outputs.append(output)
    return {**_identity(inferred), "parameters": inferred.seconds, "outputs": outputs}, b"".join(behind)


def write_generated(inferred: protocol.Inferred) -> dict[str, Any]:
    """Returns the JSON of a response with one text; every tensor is a field."""
    return {
        **_identity(inferred),
        **{tensor.name: element for tensor in inferred.tensors for element in tensor.elements},
    }


def _identity(inferred: protocol.Inferred) -> dict[str, str]:
    named = {"id": inferred.request_id} if inferred.request_id else {}
    return {**named, "model_name": inferred.model, "model_version": inferred.version}


def _read_text(element: object, field: str) -> str:
    if isinstance(element, list) and len(element) == 1:
        (element,) = element
    if not isinstance(element, str):
        raise InvalidRequestError(field, "expected a string or a list of one string")
    return element
