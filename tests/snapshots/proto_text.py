"""Renders a protobuf contract as text, one line per service method, field and enum value.

Comments and the layout of the source file have no effect on the text.
"""

from collections.abc import Iterator

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

INDENT = "  "


def render_file(descriptor: FileDescriptor) -> str:
    """Returns the text of a contract."""
    file = FileDescriptorProto()
    descriptor.CopyToProto(file)
    lines = [f"file {file.name}", f"syntax {file.syntax}", f"package {file.package}"]
    lines += [f"import {name}" for name in file.dependency]
    lines += [f"option {field.name} = {value}" for field, value in file.options.ListFields()]
    for service in file.service:
        lines += ["", *_service(service)]
    for message in file.message_type:
        lines += ["", *_message(message)]
    for enum in file.enum_type:
        lines += ["", *_enum(enum)]
    return "\n".join(lines)


def _service(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name}"
    for method in service.method:
        yield f"{INDENT}rpc {_method(method)}"


def _method(method: MethodDescriptorProto) -> str:
    sent = _streamed(method.input_type, streams=method.client_streaming)
    answered = _streamed(method.output_type, streams=method.server_streaming)
    return f"{method.name}({sent}) returns ({answered}){_options(method)}"


def _streamed(type_name: str, *, streams: bool) -> str:
    return f"stream {type_name}" if streams else type_name


def _message(message: DescriptorProto, indent: str = "") -> Iterator[str]:
    yield f"{indent}message {message.name}{_options(message)}"
    inner = indent + INDENT
    for field in message.field:
        yield f"{inner}{_field(field, message)}"
    for span in message.reserved_range:
        yield f"{inner}reserved {span.start} to {span.end - 1}"
    for name in message.reserved_name:
        yield f"{inner}reserved {name}"
    for nested in message.nested_type:
        yield from _message(nested, inner)
    for enum in message.enum_type:
        yield from _enum(enum, inner)


def _field(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    label = FieldDescriptorProto.Label.Name(field.label).removeprefix("LABEL_").lower()
    kind = field.type_name or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    # The compiler adds a synthetic oneof for an optional field of proto3.
    if field.proto3_optional:
        place = " presence"
    else:
        place = f" oneof {message.oneof_decl[field.oneof_index].name}" if field.HasField("oneof_index") else ""
    return f"{field.number} {field.name}: {label} {kind}{place}{_options(field)}"


def _enum(enum: EnumDescriptorProto, indent: str = "") -> Iterator[str]:
    yield f"{indent}enum {enum.name}{_options(enum)}"
    for value in enum.value:
        yield f"{indent}{INDENT}{value.number} {value.name}{_options(value)}"


def _options(element: object) -> str:
    options = getattr(element, "options", None)
    fields = [] if options is None else [f"{field.name}={value}" for field, value in options.ListFields()]
    return f" [{', '.join(fields)}]" if fields else ""
