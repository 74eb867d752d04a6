"""Parses forms, URL-encoded or multipart: small ones anywhere, large ones in the sandbox."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, FormParser, parse_options_header

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.sandbox.frames import Item
from dragoman.serve.sandbox.worker import Parser, Refusal

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
PARSE_FORM = "form"


class Upload(NamedTuple):
    """A file of a multipart body."""

    name: str
    data: bytes


@dataclass(slots=True)
class Form:
    """A form.

    Attributes:
        fields: names and values, in their order.
    """

    fields: list[tuple[str, str]] = field(default_factory=list)
    uploads: dict[str, Upload] = field(default_factory=dict)


def media_type_of(content_type: str) -> str:
    """Returns the media type of a header, without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def parse_form(data: bytes, content_type: str, max_values: int) -> Form:
    """Returns the content of a form; empty if the content type is none of a form.

    Raises InvalidRequestError if the form is malformed or has too many values.
    """
    media_type = media_type_of(content_type)
    if media_type == FORM:
        return Form(parse_pairs("body", data, max_values))
    if media_type == MULTIPART:
        boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
        return _parse_multipart(data, boundary, max_values)
    return Form()


def parse_pairs(field_name: str, data: bytes, max_values: int) -> list[tuple[str, str]]:
    """Returns names and values of a query or a URL-encoded form.

    Raises:
        InvalidRequestError: naming `field_name`, if it is malformed or has too many values.
    """
    try:
        text = data.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=max_values)
    except ValueError as error:
        problem = f"expected at most {max_values} URL-encoded values in UTF-8"
        raise InvalidRequestError(field_name, problem) from error


def _parse_multipart(data: bytes, boundary: bytes, max_values: int) -> Form:
    form, left = Form(), max_values

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise FormParserError

    def on_field(part: Field) -> None:
        count()
        form.fields.append(((part.field_name or b"").decode(), (part.value or b"").decode()))

    def on_file(part: File) -> None:
        count()
        part.file_object.seek(0)
        name = (part.file_name or b"").decode()
        form.uploads.setdefault((part.field_name or b"").decode(), Upload(name, part.file_object.read()))

    try:
        config = {"MAX_MEMORY_FILE_SIZE": len(data) + 1}
        parser = FormParser(MULTIPART, on_field, on_file, boundary=boundary, config=config)
        parser.write(data)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise InvalidRequestError("body", f"expected multipart data of at most {max_values} parts") from error
    return form


def _parse(items: list[Item]) -> Iterator[Item]:
    """Yields name and value of each field, then name, file name and, as an item of its own, content of each file."""
    content_type, max_values, data = items
    try:
        form = parse_form(data, content_type, max_values)
    except InvalidRequestError as error:
        raise Refusal(error.field, error.problem) from error
    yield from form.fields
    for name, upload in form.uploads.items():
        yield name, upload.name, True
        yield upload.data


PARSERS: dict[str, Parser] = {PARSE_FORM: _parse}
