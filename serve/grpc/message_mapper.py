"""Maps values to protobuf messages and back by field name.

A value is a dataclass whose attributes have the names of the message's fields. None stands for an absent field. A
member of a `StrEnum` stands for the number whose name ends in its value, as in FINISH_REASON_EOS. A message whose only
field is a repeated scalar stands for a tuple, because protobuf has no lists of lists.
"""

import re
from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

AnyMessage = TypeVar("AnyMessage", bound=Message)
Value = TypeVar("Value")

Convert = Callable[[Any], Any]
Fill = Callable[[Any, Any], None]


def message_writer(kind: type[AnyMessage]) -> Callable[..., AnyMessage]:
    """Returns a function that converts a value to a message of this class, a new one or an empty given one."""
    fill = _filler(kind.DESCRIPTOR)

    def write(value: object, message: AnyMessage | None = None) -> AnyMessage:
        message = kind() if message is None else message
        fill(message, value)
        return message

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


def _filler(descriptor: Any) -> Fill:
    """Returns a function that sets the fields of a message from a value."""
    fields = [(field.name, _field_filler(field), field.has_presence) for field in descriptor.fields]
    get = _getter([name for name, *_ in fields])

    def fill(message: Any, value: object) -> None:
        for (name, put, has_presence), member in zip(fields, get(value)):  # noqa: B905 - as in `message_reader`
            # None and an empty list both stand for an absent field; another field is absent at its default.
            if member or (has_presence and member is not None):
                if put is None:
                    setattr(message, name, member)
                else:
                    put(message, member)

    return fill


def _field_filler(field: Any) -> Fill | None:
    """Returns a function that sets the field of a message; None: the value is the field."""
    name = field.name
    if field.enum_type is not None:
        numbers = _numbers(field.enum_type)
        return lambda message, member: setattr(message, name, numbers[member])
    if field.message_type is None:
        return (lambda message, elements: getattr(message, name).extend(elements)) if field.is_repeated else None
    fill = _filler(field.message_type)
    if row := _only_list(field):
        fill = lambda message, elements: getattr(message, row).extend(elements)  # noqa: E731
    if not field.is_repeated:

        def set_one(message: Any, value: object) -> None:
            part = getattr(message, name)
            part.SetInParent()
            fill(part, value)

        return set_one

    def add_all(message: Any, values: Iterable[object]) -> None:
        add = getattr(message, name).add
        for value in values:
            fill(add(), value)

    return add_all


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
