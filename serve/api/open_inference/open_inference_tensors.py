"""Tensors of the Open Inference Protocol: texts that come in, and what a translation becomes on its way out.

As bytes, elements are little-endian, and a text is its length in four bytes and itself. Used by both forms of the
protocol; knows neither JSON nor messages.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from serve.errors import InvalidRequestError
from serve.translation.response import Translation

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
        Output("normalised_score", "FP64", lambda translation: translation.normalised_score),
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
