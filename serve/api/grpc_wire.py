"""Bytes from the wire to a request message, or to an error that says what is wrong with them.

gRPC answers bytes that are no message with "Exception deserializing request!", which tells a client nothing. The usual
fault is a text that is not UTF-8, so this module finds the field. It is called by the handlers of the gRPC interface
only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from protos.translation_pb2 import TranslateManyRequest
from serve.errors import InvalidRequestError

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
