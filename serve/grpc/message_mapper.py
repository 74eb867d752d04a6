"""Maps values to protobuf messages and back by field name.

A value is a dataclass whose attributes have the names of the message's fields. None stands for an absent field. A
member of a `StrEnum` stands for the number whose name ends in its value, as in FINISH_REASON_EOS. A message whose only
field is a repeated scalar stands for a tuple, because protobuf has no lists of lists.
"""

import re
from collections.abc import Callable, Collection
from operator import attrgetter
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

AnyMessage = TypeVar("AnyMessage", bound=Message)
Value = TypeVar("Value")

Convert = Callable[[Any], Any]


def message_writer(kind: type[AnyMessage]) -> Callable[[object], AnyMessage]:
    """Returns a function that converts a value to a message of this class."""
    writers = {field.name: _field_writer(field) for field in kind.DESCRIPTOR.fields}
    names, get = tuple(writers), _getter(writers)
    converted = tuple((name, convert) for name, convert in writers.items() if convert is not None)

    def write(value: object) -> AnyMessage:
        fields = dict(zip(names, get(value)))  # noqa: B905 - the lengths are equal, and the check costs time
        for name, convert in converted:
            if field := fields[name]:  # None and an empty list both stand for an absent field
                fields[name] = convert(field)
        return kind(**fields)

    return write


def message_reader(message: type[AnyMessage], kind: type[Value]) -> Callable[[AnyMessage], Value]:
    """Returns a function that converts a message to a value; attributes without a field keep their defaults."""
    fields, hints = message.DESCRIPTOR.fields_by_name, get_type_hints(kind)
    readers = {name: _field_reader(fields[name], hint) for name, hint in hints.items() if name in fields}
    plain = [name for name, convert in readers.items() if convert is None]
    get = _getter(plain)
    converted = tuple((name, convert) for name, convert in readers.items() if convert is not None)

    def read(message: AnyMessage) -> Value:
        values = dict(zip(plain, get(message)))  # noqa: B905 - the lengths are equal, and the check costs time
        for name, convert in converted:
            values[name] = convert(message)
        return kind(**values)

    return read


def _getter(names: Collection[str]) -> Callable[[object], tuple[Any, ...]]:
    """Returns a function that reads all attributes as a tuple; `attrgetter` returns no tuple for a single name."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def set_fields(message: Message) -> dict[str, Any]:
    """Returns the fields that are set, by name; nested messages are not converted."""
    return {field.name: list(value) if field.is_repeated else value for field, value in message.ListFields()}


def _field_writer(field: Any) -> Convert | None:
    """Returns a function that converts the value of a field; None: no conversion."""
    if field.enum_type is not None:
        return _numbers(field.enum_type).__getitem__
    if field.message_type is None:
        return None
    kind: Any = GetMessageClass(field.message_type)
    name, write = _only_list(field), message_writer(kind)
    if name:
        return lambda rows: [kind(**{name: row}) for row in rows]
    if field.is_repeated:
        return lambda values: [write(value) for value in values]
    return write


def _field_reader(field: Any, hint: Any) -> Convert | None:
    """Returns a function that reads an attribute of this type from a message; None: the field is the value."""
    name, optional = field.name, NoneType in get_args(hint)
    inner = next(argument for argument in get_args(hint) if argument is not NoneType) if optional else hint
    if field.is_repeated:
        element = _element_reader(field, inner)
        empty = None if optional else ()  # an absent list and an empty one are the same message
        return lambda message: tuple(map(element, elements)) if (elements := getattr(message, name)) else empty
    if field.enum_type is not None:
        members = {number: inner(value) for value, number in _numbers(field.enum_type).items()}
        find = members.get if optional else members.__getitem__
        return lambda message: find(getattr(message, name))
    if field.message_type is None:
        if not optional:
            return None
        return lambda message: getattr(message, name) if message.HasField(name) else None
    read = message_reader(GetMessageClass(field.message_type), inner)
    if optional:
        return lambda message: read(getattr(message, name)) if message.HasField(name) else None
    return lambda message: read(getattr(message, name))


def _element_reader(field: Any, hint: Any) -> Convert:
    """Returns a function that converts one element of a list of type `tuple[element, ...]`."""
    if name := _only_list(field):
        return lambda row: tuple(getattr(row, name))
    if field.message_type is None:
        return lambda element: element
    element, _ = get_args(hint)
    return message_reader(GetMessageClass(field.message_type), element)


def _only_list(field: Any) -> str:
    """Returns the name of a message's repeated scalar field if it is the only field, else an empty string."""
    fields = [] if field.message_type is None else field.message_type.fields
    is_list = len(fields) == 1 and fields[0].is_repeated and fields[0].message_type is None
    return str(fields[0].name) if is_list else ""


def _numbers(kind: Any) -> dict[str, int]:
    """Returns the number of each enum value by name, without UNSPECIFIED, which stands for None."""
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.name).upper() + "_"
    return {value.name.removeprefix(prefix).lower(): value.number for value in kind.values if value.number}
