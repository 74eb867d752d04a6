"""Parameters in JSON, forms and multipart data: what was sent is read, and hostile bytes get an error of the client."""

from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.serve.edge.form_parser import FORM, MULTIPART, Upload
from dragoman.serve.edge.parameters import parse_parameters
from dragoman.serve.edge.schemas import JSON
from dragoman.serve.errors import InvalidRequestError

MAX_VALUES = 20
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PAIRS = st.lists(st.tuples(st.sampled_from("abc"), TEXTS), max_size=6)


def grouped(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, value in pairs:
        groups.setdefault(name, []).append(value)
    return groups


@settings(max_examples=40)
@given(PAIRS, PAIRS)
def test_the_query_comes_before_the_form(query: list[tuple[str, str]], form: list[tuple[str, str]]) -> None:
    found = parse_parameters(urlencode(form).encode(), FORM, urlencode(query).encode(), MAX_VALUES)
    assert found.values == grouped(query + form)


@settings(max_examples=40)
@given(PAIRS, st.binary(max_size=50))
def test_multipart_data_has_fields_and_files(pairs: list[tuple[str, str]], data: bytes) -> None:
    files: list[tuple[str, Any]] = [(name, (None, value)) for name, value in pairs]
    request = httpx.Request("POST", "http://host", files=[*files, ("file", ("a.txt", data))])
    found = parse_parameters(request.read(), request.headers["content-type"], b"", MAX_VALUES)
    assert found.values == grouped(pairs)
    assert found.uploads == {"file": Upload("a.txt", data)}


@settings(max_examples=100)
@given(st.binary(max_size=100), st.sampled_from([JSON, FORM, f"{MULTIPART}; boundary=x", MULTIPART, "", "a/b"]))
def test_any_bytes_are_read_or_refused(data: bytes, content_type: str) -> None:
    for body in (data, b"--x\r\n" + data, b'{"q": "' + data):
        try:
            parse_parameters(body, content_type, data, MAX_VALUES)
        except InvalidRequestError as error:
            assert error.field in ("body", "query")  # noqa: PT017 - most inputs raise nothing


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b'{"q": "\\ud800"}', JSON),
        (b"[]", JSON),
        (b"[" * 100_000, JSON),
        (b"a=1&" * (MAX_VALUES + 1), FORM),
        (b"a=%ff", FORM),
        (
            b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * (MAX_VALUES + 1) + b"--x--",
            f"{MULTIPART}; boundary=x",
        ),
    ],
)
def test_too_many_or_invalid_values_are_refused(data: bytes, content_type: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_parameters(data, content_type, b"", MAX_VALUES)
