"""Invalid bodies get an error that names the field; compressed bodies are read up to the limit."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from dragoman.serve.edge.bodies import BodyParser, ScoreBody, TranslateBody
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.request import ScoreRequest, TranslateRequest
from tests.support.cases import cases
from tests.support.live import LiveService, run_service

CASES = cases(__file__)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda children: st.lists(children, max_size=5) | st.dictionaries(st.text(), children, max_size=5),
    max_leaves=10,
)


TRANSLATIONS, SCORES = BodyParser(TranslateBody, 1 << 20), BodyParser(ScoreBody, 1 << 20)


def refused(data: bytes, parser: BodyParser[Any] = TRANSLATIONS) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as raised:
        parser.parse_now(data)
    return raised.value


def test_every_field_is_read_and_one_text_is_a_list_of_one() -> None:
    data = b"""{"text": "a", "source_language": "en", "target_language": "de", "target_prefix": ["b"],
        "options": {"max_target_tokens": 5, "suppressed_tokens": ["c"]}}"""
    assert TranslateRequest(**TRANSLATIONS.parse_now(data)) == TranslateRequest(
        text=["a"],
        source_language="en",
        target_language="de",
        target_prefix=["b"],
        options=SearchFields(max_target_tokens=5, suppressed_tokens=("c",)),
    )
    scored = SCORES.parse_now(b'{"pairs": [{"text": "a", "translation": "b"}], "target_language": "de"}')
    assert ScoreRequest(**scored) == ScoreRequest(pairs=[("a", "b")], target_language="de")


FIELDS = st.sampled_from([*TranslateBody.__annotations__, "unknown"])
OPTIONS = st.dictionaries(st.sampled_from([*SearchFields.model_fields, "unknown"]), JSON_VALUES, max_size=2)
VALID = st.just("a") | st.just(["a"]) | st.just("en") | st.just([{"source": "a", "targets": "b"}])
OTHER_NUMBERS = ("NaN", "-Infinity", "1e400", "-0", "01", "1" * 5000, "1E2")


@given(
    fields=st.lists(st.tuples(FIELDS, VALID | JSON_VALUES | OPTIONS), max_size=4),
    number=st.sampled_from(OTHER_NUMBERS),
    end=st.sampled_from(["}", "", "}x", " }"]),
)
def test_the_quick_parser_accepts_and_refuses_what_the_library_does(
    fields: list[tuple[str, object]], number: str, end: str
) -> None:
    """A field may occur twice, and `top_p` may have any number."""
    pairs = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in [("text", "a"), *fields]]
    for members in (pairs, [*pairs, f'"options": {{"top_p": {number}}}']):
        data = ("{" + ", ".join(members) + end).encode()
        outcomes = []
        for parse in (TRANSLATIONS.parse_now, TRANSLATIONS.parse_slowly):
            try:
                outcomes.append(repr(parse(data)))
            except InvalidRequestError as error:
                outcomes.append(f"refused: {error}")
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(("data", "field"), CASES["an invalid score body is rejected by field"])
def test_an_invalid_score_body_is_rejected_by_field(data: str, field: str) -> None:
    assert refused(data.encode(), SCORES).field == field


@pytest.mark.parametrize(
    ("data", "field"),
    [
        *((data, "body") for data in (b"", b'{"text": "a"', b'{"text": "\xff"}', b'\xff\xfe{\x00"\x00')),
        *((data, "body") for data in (b"[" * 100_000, b'{"text":' * 100_000, b"[]", b"null")),
        (b'{"options": {"top_k": ' + b"9" * 5000 + b"}}", "body"),
        *((data, "text") for data in (b"{}", b'{"text": 5}', b'{"text": null}', b'{"text": {"a": "b"}}')),
        *((data.encode(), field) for data, field in CASES["an invalid body is rejected by field"]),
    ],
)
def test_an_invalid_body_is_rejected_by_field(data: bytes, field: str) -> None:
    assert refused(data).field == field


def test_the_name_of_an_unknown_field_is_cut() -> None:
    assert len(str(refused(json.dumps({"text": "a", "x" * 10_000: 1}).encode()))) < 100


def test_a_list_is_rejected_at_its_first_invalid_element() -> None:
    """Building one error per element would block the event loop for a second."""
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(TranslateBody).validate_python({"text": [1, 2, 3]})
    assert [error["loc"] for error in raised.value.errors()] == [("text", 0)]


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(TranslateBody.__annotations__, JSON_VALUES)))
def test_any_json_is_parsed_unchanged_or_rejected(content: dict[str, object]) -> None:
    try:
        body = TRANSLATIONS.parse_now(json.dumps(content).encode())
    except InvalidRequestError as error:
        str(error).encode()
    else:
        text = content["text"]
        assert body["text"] == ([text] if isinstance(text, str) else text)
        assert body["options"].model_dump(exclude_unset=True) == content.get("options", {})


MAX_BODY_BYTES = 2000
GOOD = json.dumps({"text": "alpha beta."}).encode()
GZIPPED = gzip.compress(GOOD, mtime=0)
LARGEST = GOOD + b" " * (MAX_BODY_BYTES - len(GOOD))
CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.fixture(scope="module")
def small(bundle_path: Path) -> Iterator[LiveService]:
    with run_service(bundle_path, max_body_bytes=MAX_BODY_BYTES) as service:
        yield service


def status(live: LiveService, content: bytes, coding: str) -> int:
    headers = {"content-type": "application/json", "content-encoding": coding}
    return live.post(content=content, headers=headers).status_code


@pytest.mark.parametrize("coding", CODINGS)
def test_a_decompressed_body_is_limited_to_the_byte(small: LiveService, coding: str) -> None:
    compress = CODINGS[coding]
    bomb = compress(bytes(MAX_BODY_BYTES * 500))
    assert len(bomb) < MAX_BODY_BYTES
    statuses = [status(small, content, coding) for content in (compress(LARGEST), compress(LARGEST + b" "), bomb)]
    assert statuses == [200, 413, 413]


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "x"])
def test_an_unknown_coding_is_rejected_with_the_known_ones(small: LiveService, coding: str) -> None:
    answer = small.post(content=GOOD, headers={"content-type": "application/json", "content-encoding": coding})
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "gzip, deflate")


@pytest.mark.parametrize(("coding", "content"), [("identity", GOOD), ("GZIP", GZIPPED)])
def test_codings_ignore_case_and_may_be_identity(small: LiveService, coding: str, content: bytes) -> None:
    assert status(small, content, coding) == 200
