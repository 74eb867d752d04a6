"""Values of JSON, YAML and PO with tags: their tags stay, and only their text is translated."""

import json
import re
from xml.sax.saxutils import unescape

import polib
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.documents import tagged
from dragoman.serve.documents.document import DocumentError, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from tests.support.cases import cases
from tests.support.segments import in_capitals

CASES = cases(__file__)

REQUEST = DocumentRequest("en", "de")


def translate(name: str, content: str) -> str:
    document = parse_document(name, content.encode(), REQUEST)
    return document.write([in_capitals(segment) for segment in document.segments]).decode()


def segments(value: str) -> list[str]:
    return [segment.text for segment in parse_document("a.json", json.dumps([value]).encode(), REQUEST).segments]


@pytest.mark.parametrize(("value", "segment", "written"), CASES["tags of a value stay"])
def test_tags_of_a_value_stay(value: str, segment: str | None, written: str | None) -> None:
    if segment is not None:
        assert segments(value) == [segment]
    (after,) = json.loads(translate("a.json", json.dumps([value])))
    if written is not None:
        assert after == written
    assert re.findall("<[^ ][^>]*>|%[a-z(]+", after) == re.findall("<[^ ][^>]*>|%[a-z(]+", value)


def test_a_value_with_nothing_but_markup_stays() -> None:
    assert segments("<b>1</b> <img src=x> <code>a</code>") == []


def test_branches_of_a_message_with_tags_are_sentences_of_their_own() -> None:
    value = "{n, plural, one {<b># dog</b> runs} other {It''s <b># dogs</b> '{here}'}}"
    other = '<g id="7"><k id="8">#</k> dogs</g> <k id="12">\'{here}\'</k>'
    assert segments(value) == [f'<g id="0"><k id="1">#</k> dog</g> runs<b id="5"/>It\'s {other}']
    (after,) = json.loads(translate("a.arb", json.dumps([value])))
    assert after == "{n, plural, one {<b># DOG</b> RUNS} other {IT''S <b># DOGS</b> '{here}'}}"


def test_a_translation_becomes_no_tag_of_a_value() -> None:
    document = parse_document("a.json", b'["a <b>c</b>"]', REQUEST)
    (after,) = json.loads(document.write(['&lt;script> <g id="1">c</g>']))
    assert after == "&lt;script> <b>c</b>"


def test_a_value_with_too_many_tags_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged, "MAX_ITEMS", 100)
    with pytest.raises(DocumentError, match="a value has more than 100 tags and texts"):
        segments("a<b>" * 60)


def test_po_keeps_placeholders_next_to_tags_and_its_flags() -> None:
    text = '#, c-format\nmsgid "<b>%d</b> dogs & %s\\n"\nmsgstr ""\n'
    (entry,) = polib.pofile(translate("a.po", text))
    assert (entry.msgstr, entry.flags) == ("<b>%d</b> DOGS & %s\n", ["c-format", "fuzzy"])


def test_yaml_keeps_the_style_of_values_with_tags() -> None:
    text = "a: A <b>red</b> ball\nb: 'It''s <i>c</i>'\nc: \"<p>d</p>\"\nd: |\n  A <b>man</b>\n  walks.\n"
    assert translate("a.yaml", text) == (
        "a: A <b>RED</b> BALL\nb: 'IT''S <i>C</i>'\nc: \"<p>D</p>\"\nd: |\n  A <b>MAN</b>\n  WALKS.\n"
    )


PARTS = (
    *("a", " b ", "<b>", "</b>", "<i c='>'>", "</i>", "<br>", "<1/>", "<code>", "</code>", "&amp;", "&lt;", "&", "<"),
    *(">", "%s", "{n}", "{n, plural, one {", "}", "''", "\n", "\u00e9"),
)
VALUES = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


@given(VALUES, st.sampled_from(["a.json", "a.yaml", "a.po"]))
def test_any_value_keeps_its_bytes_and_its_markup(value: str, name: str) -> None:
    quoted = json.dumps(value, ensure_ascii=False)
    content = f'msgid {quoted}\nmsgstr ""\n' if name == "a.po" else f"[{quoted}]"
    document = parse_document(name, content.encode(), REQUEST)
    if name != "a.po":
        assert document.write([segment.text for segment in document.segments]).decode() == content
    written = document.write([in_capitals(segment) for segment in document.segments]).decode()
    after = polib.pofile(written)[0].msgstr if name == "a.po" and document.segments else ""
    if name != "a.po":
        (after,) = json.loads(written) if name == "a.json" else yaml.safe_load(written)
    if document.segments:
        assert _readable(after).upper() == _readable(value).upper()


def _readable(value: str) -> str:
    """Returns a value without references: a character without one may get one of another."""
    return unescape(value.replace("''", "'"))


@pytest.mark.parametrize("value", CASES["values for programs stay"])
def test_values_for_programs_stay(value: str) -> None:
    assert segments(value) == []


@pytest.mark.parametrize("value", CASES["values for people are texts"])
def test_values_for_people_are_texts(value: str) -> None:
    assert segments(value) == [value]


@pytest.mark.parametrize(
    ("name", "content"), [("a.json", '["{}"]'), ("a.yaml", "a: {}\n"), ("a.po", 'msgid "{}"\nmsgstr ""\n')]
)
def test_elements_of_the_request_stay(name: str, content: str) -> None:
    value = "A <Mark>dog</Mark> runs"
    document = parse_document(name, content.format(value).encode(), DocumentRequest("en", "de", ignore_tags=("mark",)))
    (segment,) = document.segments
    assert segment.text == 'A <k id="1">dog</k> runs'
    assert b"<Mark>dog</Mark>" in document.write([segment.text])
