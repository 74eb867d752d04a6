"""Changes one part of a file, drawn by Hypothesis, and keeps its structure: JSON, protobuf messages and raw bytes."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

# ONNX Runtime 1.31 divides by the lower 32 bits of the heads in `GroupQueryAttention`: no value here has zeros there.
HUGE = 2**62 + 1
NUMBERS = (-HUGE, -(2**31), -1, 0, 1, 2, 7, 2**31 - 1, HUGE)
NAMES = ("", "a", "../x", "/etc/hostname", "weights.bin", "a\nb\x1b[31m", "x" * 5000, "Loop", "Gather", str(HUGE), "-1")
DEEP: Any = json.loads("[" * 500 + "]" * 500)
VALUES: tuple[Any, ...] = (
    *NUMBERS, *NAMES, 10**30, 1e308, True, None, [], {}, [0] * 2000, [HUGE], ["a"] * 2000, {"a": {}}, DEEP
)  # fmt: skip


def draw_json(data: DataObject, content: bytes) -> bytes:
    """Returns JSON with one value replaced, removed or repeated."""
    root = json.loads(content)
    parent = data.draw(st.sampled_from(list(_containers(root))), "container")
    key = data.draw(st.sampled_from(sorted(parent) if isinstance(parent, dict) else range(len(parent))), "key")
    change = data.draw(st.sampled_from(("replace", "remove", "repeat")), "change")
    if change == "remove":
        del parent[key]
    elif change == "repeat" and isinstance(parent, list):
        parent.extend([parent[key]] * 3)
    else:
        parent[key] = data.draw(st.sampled_from(VALUES), "value")
    return json.dumps(root).encode()


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value[:20]:
            yield from _containers(item)


def draw_message(data: DataObject, message: Message) -> bytes:
    """Returns a message with one field, at any depth, replaced, removed or repeated."""
    part = data.draw(st.sampled_from(list(_messages(message))), "message")
    field = data.draw(st.sampled_from([field for field, _ in part.ListFields()]), "field")
    value = getattr(part, field.name)
    if not field.is_repeated:
        if field.message_type is not None or data.draw(st.booleans(), "clear"):
            part.ClearField(field.name)
        else:
            setattr(part, field.name, _draw_scalar(data, field, value))
        return message.SerializeToString()
    index = data.draw(st.integers(0, len(value) - 1), "index")
    if data.draw(st.booleans(), "remove"):
        del value[index]
    elif field.message_type is not None:
        value.add().CopyFrom(value[index])
    else:
        value[index] = _draw_scalar(data, field, value[index])
    return message.SerializeToString()


def _messages(message: Message) -> Iterator[Message]:
    if message.ListFields():
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value[:40] if field.is_repeated else (value,):
                yield from _messages(item)


def _draw_scalar(data: DataObject, field: FieldDescriptor, old: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return data.draw(st.sampled_from(NAMES), "text")
    if field.type == FieldDescriptor.TYPE_BYTES:
        return draw_bytes(data, old)
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return data.draw(st.sampled_from((0.0, -1.0, 1e38, float("nan"), float("inf"))), "float")
    if field.enum_type is not None:
        return data.draw(st.sampled_from([value.number for value in field.enum_type.values]), "enum")
    if field.type == FieldDescriptor.TYPE_BOOL:
        return not old
    limit = 2**31 if field.type == FieldDescriptor.TYPE_INT32 else 2**63
    return data.draw(st.sampled_from([number for number in NUMBERS if -limit <= number < limit]), "number")


def draw_bytes(data: DataObject, content: bytes) -> bytes:
    """Returns bytes that are cut, repeated, or overwritten in one place, by a random byte or a hostile number."""
    place = data.draw(st.integers(0, max(0, min(len(content), 4096) - 1)), "place")
    change = data.draw(st.sampled_from(("cut", "byte", "number", "repeat")), "change")
    if change == "cut":
        return content[:place]
    if change == "repeat":
        return content[:place] + content[place : place + 64] * 3 + content[place + 64 :]
    if change == "byte":
        new = bytes([data.draw(st.integers(0, 255), "byte")])
    else:
        new = struct.pack("<I", data.draw(st.sampled_from((0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1)), "number"))
    return content[:place] + new + content[place + len(new) :]


def draw_safetensors(data: DataObject, content: bytes) -> bytes:
    """Returns a safetensors file with another header, or another length of the header."""
    (length,) = struct.unpack("<Q", content[:8])
    if data.draw(st.booleans(), "length"):
        return (
            struct.pack("<Q", data.draw(st.sampled_from((0, 1, length - 1, length + 1, 2**40, 2**64 - 1))))
            + content[8:]
        )
    header = draw_json(data, content[8 : 8 + length])
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def damage(path: Path, content: bytes | slice | None) -> None:
    """Replaces a file by other content or by a part of its own, or removes it."""
    if content is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[content] if isinstance(content, slice) else content)
