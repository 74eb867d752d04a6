"""Protocols as data: how a request of each kind is written, and how its response is read.

`protocols.yaml` describes the built-in protocols and explains the fields. A scenario adds others in the same form.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from pydantic import Field, TypeAdapter, model_validator

from dragoman.model.config import Section
from dragoman.protos import inference_pb2, translation_pb2

# The modules register their services in protobuf's pool of descriptors.
SERVICES = (translation_pb2.DESCRIPTOR, inference_pb2.DESCRIPTOR)
_EACH, _OPTIONS = "$each", "$options"
_NAME = re.compile(r"\$(\w+)")
# A request to try a template with; every name that a template may contain.
_EXAMPLE: dict[str, Any] = {
    "texts": ("One.",),
    "text": "One.",
    "encoded_texts": (b"One.",),
    "count": 1,
    **dict.fromkeys(("source_language", "target_language", "model"), "x"),
    "options": {},
}


class RequestProtocol(Section):
    """A protocol of requests: transport, call, and templates of the body and its response."""

    transport: Literal["grpc", "grpc-stream", "grpc-many", "http", "sse"]
    call: str = Field(min_length=1)
    body: dict[str, Any]
    answer: str
    reason: str = ""
    result: str = ""
    interface: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        unknown = self.names - _EXAMPLE.keys() - {_EACH[1:]}
        if unknown:
            raise ValueError(f"expected ${', $'.join(_EXAMPLE)}, got ${', $'.join(sorted(unknown))}")
        if self.transport in ("grpc-stream", "sse") and not self.result:
            raise ValueError(f"result: expected the event of a {self.transport} response that holds the result")
        if self.grpc:
            try:
                self.request_class(**self.write(_EXAMPLE))
            except (KeyError, TypeError, ValueError) as error:
                problem = f"expected a gRPC method and a body of its fields: {error}"
                raise ValueError(f"call: {self.call}: {problem}") from error
        return self

    @property
    def grpc(self) -> bool:
        """Whether requests use gRPC, not HTTP."""
        return self.transport.startswith("grpc")

    @property
    def names(self) -> set[str]:
        """Names after `$` in the path and the body."""
        return set(_NAME.findall(f"{self.call} {self.body}"))

    @property
    def request_class(self) -> type[Message]:
        """The class of the requests; TranslateMany wraps it."""
        if self.transport == "grpc-many":
            return translation_pb2.TranslateRequest
        return self._message_class("input_type")

    @property
    def response_class(self) -> type[Message]:
        """The class of the responses, or of the events of a stream."""
        return self._message_class("output_type")

    def _message_class(self, side: str) -> type[Message]:
        service, _, method = self.call.removeprefix("/").partition("/")
        return GetMessageClass(getattr(Default().FindServiceByName(service).FindMethodByName(method), side))

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the body of a request, given a value for every name."""
        filled: dict[str, Any] = _fill(self.body, values)
        return filled

    def check_fields(self, fields: Mapping[str, Any]) -> None:
        """Raises ValueError with the name of a field that a gRPC request lacks; the body of HTTP may have any field."""
        for name, value in fields.items() if self.grpc else ():
            try:
                self.request_class(**{name: value})
            except (TypeError, ValueError) as error:
                message = self.request_class.DESCRIPTOR.name
                raise ValueError(
                    f"fields.{name}: expected a field of {message} and a value of its type, got {value!r}: {error}"
                ) from error

    def path(self, values: Mapping[str, Any]) -> str:
        """Returns the HTTP path of a request."""
        return _NAME.sub(lambda name: str(values[name[1]]), self.call)

    def count(self, answer: object) -> int:
        """Returns the number of translations in a response, which is JSON or a message."""
        found = part_at(answer, self.answer)
        if isinstance(found, str | bytes):
            return 1
        return len(found) if hasattr(found, "__len__") else 0


def _fill(template: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(template, str):
        return values[template[1:]] if template.startswith("$") else template
    if isinstance(template, list):
        return [_fill(item, values) for item in template]
    if not isinstance(template, dict):
        return template
    if _EACH in template:
        return [_fill(template[_EACH], {**values, "text": text}) for text in values["texts"]]
    filled: dict[str, Any] = {}
    for name, part in template.items():
        if name == _OPTIONS:
            filled |= values[name[1:]]
        elif (value := _fill(part, values)) not in ("", {}):
            filled[name] = value
    return filled


def part_at(answer: Any, path: str) -> Any:
    """Returns the part of JSON or a message at a dotted path; None if there is none."""
    for step in path.split("."):
        try:
            if isinstance(answer, Message):
                answer = getattr(answer, step)
            else:
                answer = answer[int(step) if step.isdecimal() else step]
        except (AttributeError, IndexError, KeyError, TypeError):
            return None
    return answer


Protocols = Mapping[str, RequestProtocol]
_FILE = Path(__file__).with_name("protocols.yaml")
PROTOCOLS: Protocols = TypeAdapter(dict[str, RequestProtocol]).validate_python(
    yaml.safe_load(_FILE.read_text(encoding="utf-8"))
)
