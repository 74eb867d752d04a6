"""Bytes from the wire to a `TranslateRequest` or to an error that says what is wrong with them; responses to messages.

gRPC answers bytes that are no message with "Exception deserializing request!", which tells a client nothing. The usual
fault is a text that is not UTF-8, so this module finds the field. It is called by `serve.grpc_api` only.
"""

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from protos import translation_pb2
from protos.translation_pb2 import TranslateRequest, TranslateResponse
from serve.errors import InvalidRequestError
from serve.request import FinishReason, TranslationResponse

_FINISH_REASONS = {
    FinishReason.EOS: translation_pb2.FINISH_REASON_EOS,
    FinishReason.LENGTH: translation_pb2.FINISH_REASON_LENGTH,
}


def parse_request(data: bytes) -> TranslateRequest | InvalidRequestError:
    """Returns the message, or the error to answer with.

    The error is returned because gRPC would replace a raised one by its own.
    """
    try:
        return TranslateRequest.FromString(data)
    except DecodeError:
        return _explain(data)


def to_message(response: TranslationResponse) -> TranslateResponse:
    """Returns the message of a response."""
    return TranslateResponse(
        translations=[
            translation_pb2.Translation(
                text=translation.text,
                score=translation.score,
                finish_reason=_FINISH_REASONS[translation.finish_reason],
                source_tokens=translation.source_tokens,
                target_tokens=translation.target_tokens,
            )
            for translation in response.translations
        ],
        timings=translation_pb2.Timings(
            tokenize_seconds=response.timings.tokenize_seconds,
            queue_seconds=response.timings.queue_seconds,
            inference_seconds=response.timings.inference_seconds,
            total_seconds=response.timings.total_seconds,
        ),
    )


def _explain(data: bytes) -> InvalidRequestError:
    no_message = InvalidRequestError("request", f"not a {TranslateRequest.DESCRIPTOR.full_name} message")
    try:
        twin = _TWIN.FromString(data)
    except DecodeError:
        return no_message
    for field, value in _byte_strings(twin):
        try:
            value.decode()
        except UnicodeDecodeError as error:
            return InvalidRequestError(field, f"not valid UTF-8 at byte {error.start}")
    return no_message


def _bytes_twin(descriptor: Descriptor) -> type[Message]:
    """Returns a message class like the one described, but with bytes in place of strings: it parses any bytes."""
    file = FileDescriptorProto()
    descriptor.file.CopyToProto(file)
    for message in file.message_type:
        for field in message.field:
            if field.type == FieldDescriptorProto.TYPE_STRING:
                field.type = FieldDescriptorProto.TYPE_BYTES
    pool = DescriptorPool()  # of its own: two files of one name may not share a pool
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(descriptor.full_name))


def _byte_strings(message: Message) -> Iterator[tuple[str, bytes]]:
    """Yields name and value of every byte string of a flat message; an element of a list is named `text[2]`."""
    for field, value in message.ListFields():
        if field.type != field.TYPE_BYTES:
            continue
        if field.is_repeated:
            yield from ((f"{field.name}[{index}]", element) for index, element in enumerate(value))
        else:
            yield field.name, value


_TWIN = _bytes_twin(TranslateRequest.DESCRIPTOR)
