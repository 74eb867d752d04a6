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
from dragoman.serve.documents.document import DocumentError, DocumentRequest, Segment
from dragoman.serve.documents.formats import parse_document

REQUEST = DocumentRequest("en", "de")


def in_capitals(segment: Segment) -> str:
    """Returns a segment in capitals; its tags and what is inside of `<k>` stay."""
    if segment.format == "text":
        return segment.text.upper()
    return re.sub("(<k .*?</k>|<[^>]*>|&[a-z]+;)|.", lambda found: found[1] or found[0].upper(), segment.text)


def translate(name: str, content: str) -> str:
    document = parse_document(name, content.encode(), REQUEST)
    return document.write([in_capitals(segment) for segment in document.segments]).decode()


def segments(value: str) -> list[str]:
    return [segment.text for segment in parse_document("a.json", json.dumps([value]).encode(), REQUEST).segments]


@pytest.mark.parametrize(
    ("value", "segment", "written"),
    [
        ("A <b>red</b> ball", 'A <g id="1">red</g> ball', "A <b>RED</b> BALL"),
        ("See <a href=\"x?a&b\" title='c > d'>e</a>.", 'See <g id="1">e</g>.', None),
        ("Click <0>here</0> or <1/> there", 'Click <g id="1">here</g> or <x id="5"/> there', None),
        ("one<br>two<br/>three", 'one<b id="1"/>two<b id="3"/>three', "ONE<br>TWO<br/>THREE"),
        ("<p>one</p> <p>two</p>", 'one<b id="1"/> <b id="3"/>two', "<p>ONE</p> <p>TWO</p>"),
        ("run <code>a &lt; b</code> now", 'run <k id="1">a &lt; b</k> now', "RUN <code>a &lt; b</code> NOW"),
        ('<b translate="no">Dragoman</b> is', '<k id="0">Dragoman</k> is', None),
        ("<b>%d</b> of %(all)s dogs", '<g id="0"><k id="1">%d</k></g> of <k id="4">%(all)s</k> dogs', None),
        ("a <b>b</b><!-- c --> d", 'a <g id="1">b</g><x id="4"/> d', None),
        ("<b>all</b>", "all", "<b>ALL</b>"),
        ("a <b>open", 'a <x id="1"/>open', "A <b>OPEN"),
        # Character references only where the value has them.
        ("Fish &amp; chips", "Fish & chips", "FISH &amp; CHIPS"),
        ("Fish & <b>chips</b>", 'Fish &amp; <g id="1">chips</g>', "FISH & <b>CHIPS</b>"),
        ("say &quot;a&quot; <i>b</i>", None, "SAY &quot;A&quot; <i>B</i>"),
        ("1 &lt; <i>b</i>", '1 &lt; <g id="1">b</g>', "1 &lt; <i>B</i>"),
        ("a &mdash; b &#8212; c", "a \u2014 b \u2014 c", "A &mdash; B &mdash; C"),
        ("&nothing; of &these", "&nothing; of &these", "&NOTHING; OF &THESE"),
        *((no_tag, no_tag, no_tag.upper()) for no_tag in ("a < b > c", "5 <= x")),
    ],
)
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


@pytest.mark.parametrize(
    "value",
    [
        *("https://example.com/a", "www.example.com", "anna@example.com", "mailto:anna", "tel:+49-30-1a"),
        *("#ff8800", ":symbol", "$name", "/usr/bin", "./index.js", "@mixin", "$t(menu.open)", "menu.open"),
        *("user_name", "MAX_SIZE", "userName", "block__element--wide", "image/png", "10px", "v1.2.3-beta"),
        *("123e4567-e89b-12d3-a456-426614174000", "2024-01-01T00:00:00Z", "%Y-%m-%d", "%B %d, %Y", "yyyy-MM-dd HH:mm"),
        *("{name}", "{{count}} / {{total}}", "%s: %d", "${first} ${last}", "{when, date, short}", "{x} <b>{y}</b>"),
    ],
)
def test_values_for_programs_stay(value: str) -> None:
    assert segments(value) == []


@pytest.mark.parametrize(
    "value",
    [
        *("Hello!", "E_xit", "_Open", "Yes/No", "and/or", "1st", "e.g.", "COVID-19", "{n} dogs", "a", "I"),
        *("#1 of all", "my day"),
    ],
)
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
