"""Bytes from the wire to a request message, or to an error that says what is wrong with them.

gRPC answers bytes that are no message with "Exception deserializing request!", which tells a client nothing. The usual
fault is a text that is not UTF-8, so this module finds the field. It is called by `serve.grpc_api` only.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

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
        self._twin = _bytes_twin(kind)

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
        for field, value in _byte_strings(twin):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                return InvalidRequestError(field, f"not valid UTF-8 at byte {error.start}")
        return no_message


def _bytes_twin(kind: type[Message]) -> type[Message]:
    """Returns a message class like the given one, but with bytes in place of strings: it parses any bytes."""
    file = FileDescriptorProto()
    kind.DESCRIPTOR.file.CopyToProto(file)
    for message in file.message_type:
        for field in message.field:
            if field.type == FieldDescriptorProto.TYPE_STRING:
                field.type = FieldDescriptorProto.TYPE_BYTES
    pool = DescriptorPool()  # of its own: two files of one name may not share a pool
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(kind.DESCRIPTOR.full_name))


def _byte_strings(message: Message, parent: str = "") -> Iterator[tuple[str, bytes]]:
    """Yields name and value of every byte string, named as in `text[2]` and `pairs[1].translation`."""
    for field, value in message.ListFields():
        name = f"{parent}{field.name}"
        named = (
            ((f"{name}[{index}]", each) for index, each in enumerate(value)) if field.is_repeated else [(name, value)]
        )
        for path, element in named:
            if field.type == field.TYPE_BYTES:
                yield path, element
            elif field.type == field.TYPE_MESSAGE:
                yield from _byte_strings(element, f"{path}.")
