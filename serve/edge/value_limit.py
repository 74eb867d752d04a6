"""Bounds the number of values of a request by a scan before it is parsed.

A parser builds an object per value and holds the interpreter's lock: 2 MiB of `[],[],` take a tenth of a second. The
scans build few objects and stop early. As every level of nesting is a value, the bound also holds for the depth.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dragoman.serve.errors import InvalidRequestError

# A pair has the most: an object and two strings.
VALUES_PER_TEXT = 4
# Room for options, suppressed pieces, parameters, 1000 terms. A few texts too many still get the error that names their
# field.
SPARE_VALUES = 8192

_OPENINGS_AND_COMMAS = b"[{,"


def max_values(max_texts: int) -> int:
    """Returns the maximum number of values of a request with up to `max_texts` texts."""
    return SPARE_VALUES + VALUES_PER_TEXT * max_texts


def check_json(data: bytes, most: int) -> None:
    """Checks a JSON document, which may be malformed; raises InvalidRequestError if it has more than `most` values."""
    # Counts the contents of strings too, which is enough for most bodies.
    if _count(data) < most:
        return
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Names of members and values are strings; outside of them are the even parts.
    parts = data.split(b'"', 4 * most)
    if len(parts) > 4 * most or _count(b"".join(parts[::2])) >= most:
        raise InvalidRequestError("body", f"expected JSON of at most {most} values")


def _count(data: bytes) -> int:
    """Returns the number of openings and commas; there is at most one value more."""
    return len(data) - len(data.translate(None, _OPENINGS_AND_COMMAS))


def check_message(data: bytes, kind: type[Message], most: int) -> None:
    """Checks a protobuf message, which may be malformed; raises InvalidRequestError if it has too many values."""
    if len(data) < 2 * most:  # a value has a tag and at least one byte
        return
    count = 0
    waiting: list[tuple[Any, int, int]] = [(kind.DESCRIPTOR, 0, len(data))]
    while waiting:
        descriptor, start, end = waiting.pop()
        for number, value_start, value_end in read_fields(data, start, end):
            field: Any = descriptor.fields_by_number.get(number)
            if field is None or field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
                count += 1
            elif field.message_type is not None:
                count += 1
                waiting.append((field.message_type, value_start, value_end))
            else:
                count += max(1, value_end - value_start)  # packed numbers have at least one byte each
            if count > most:
                raise InvalidRequestError("request", f"expected a message of at most {most} values")


# Wire types of protobuf, and the bytes of their values.
_VARINT, _LENGTH = 0, 2
_FIXED_BYTES = {1: 8, 3: 0, 4: 0, 5: 4}
_MAX_VARINT_BYTES = 10


def read_fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields number, start and end of each value between two offsets of a message, until it is malformed."""
    offset = start
    try:
        while offset < end:
            tag, offset = _read_varint(data, offset)
            number, wire_type = tag >> 3, tag & 7
            value_start = offset
            if wire_type == _LENGTH:
                length, value_start = _read_varint(data, offset)
                offset = value_start + length
            elif wire_type == _VARINT:
                _, offset = _read_varint(data, offset)
            else:
                offset += _FIXED_BYTES[wire_type]
            if offset > end:
                return
            yield number, value_start, offset
    except (IndexError, KeyError):
        return


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Returns a number of seven bits per byte, and the offset after it; raises IndexError if it is malformed."""
    value = 0
    for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no continuation bit
            return value, offset
    raise IndexError
