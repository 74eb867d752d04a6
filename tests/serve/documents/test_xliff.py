"""XLIFF: which units are translated, what their targets have, and that all else stays."""

import re
from xml.etree import ElementTree as ET

import pytest

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from tests.support.cases import cases

CASES = cases(__file__)

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


def version_1(unit: str) -> str:
    return (
        f'{HEAD}<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n<file original="a" '
        f'source-language="en" target-language="de">\n<body>{unit}</body></file></xliff>\n'
    )


def version_2(unit: str) -> str:
    return (
        '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.1" srcLang="en" trgLang="de">'
        f'<file id="f"><unit id="u">{unit}</unit></file></xliff>'
    )


def parse(text: str, *, retranslate: bool = False) -> Document:
    return parse_document("a.xlf", text.encode(), DocumentRequest("en", "de", retranslate))


def write(document: Document) -> str:
    texts = (segment.text for segment in document.segments)
    capitals = [re.sub("(<[^>]*>)|[^<]+", lambda found: found[1] or found[0].upper(), text) for text in texts]
    return document.write(capitals).decode()


CODES = ' a <g id="1">{}</g> &amp; <x id="2"/>{}<ph id="3">%s</ph>'
NATIVE = '{} <bpt id="1">&lt;b></bpt>{}<ept id="1">&lt;/b></ept>'
MARKED = '<mrk mtype="seg" mid="0">{}</mrk> <mrk mtype="seg" mid="1">{}</mrk>'
SPANS = '{} <sc id="1"/>{}<ec startRef="1"/> <mrk id="m" translate="no">c</mrk>'


@pytest.mark.parametrize(("before", "after"), CASES["a unit of version 1 gets its target"])
def test_a_unit_of_version_1_gets_its_target(before: str, after: str) -> None:
    unit = '<trans-unit id="1">{}</trans-unit>'
    assert write(parse(version_1(unit.format(before)))) == version_1(unit.format(after))


@pytest.mark.parametrize("codes", [CODES, NATIVE])
def test_inline_codes_go_around_their_texts(codes: str) -> None:
    source = f'<trans-unit id="1"><source>{codes.format("b", "c")}</source>'
    target = f'<target state="translated">{codes.format("B", "C").replace(" a ", " A ")}</target>'
    assert write(parse(version_1(f"{source}</trans-unit>"))) == version_1(f"{source}{target}</trans-unit>")


@pytest.mark.parametrize(
    "before", ["", f"<target>{MARKED.format('', '')}</target>", '<target>\n<mrk mtype="seg" mid="0"/>\n</target>']
)
def test_a_source_in_segments_has_a_target_in_segments(before: str) -> None:
    source = f'<trans-unit id="1"><source>a. b.</source><seg-source>{MARKED.format("a.", "b.")}</seg-source>'
    target = f'<target state="translated">{MARKED.format("A.", "B.")}</target>'
    assert write(parse(version_1(f"{source}{before}</trans-unit>"))) == version_1(f"{source}{target}</trans-unit>")


@pytest.mark.parametrize("codes", ["{}", '{} <pc id="1">{}</pc>', SPANS])
@pytest.mark.parametrize("target", ["", "<target/>"])
@pytest.mark.parametrize("state", ["", ' state="initial"'])
def test_a_segment_of_version_2_gets_its_target(codes: str, target: str, state: str) -> None:
    source = f"<source>{codes.format('a', 'b')}</source>"
    written = f'<segment state="translated">{source}<target>{codes.format("A", "B")}</target></segment>'
    assert write(parse(version_2(f"<segment{state}>{source}{target}</segment>"))) == version_2(written)


@pytest.mark.parametrize(
    "text",
    [
        version_1('<trans-unit id="1"><source>a</source><target state="final">b</target></trans-unit>'),
        version_2('<segment state="reviewed"><source>a</source><target>b</target></segment>'),
    ],
)
def test_a_translated_unit_is_translated_again_only_on_request(text: str) -> None:
    assert write(parse(text)) == text
    assert ">A</target>" in write(parse(text, retranslate=True))


@pytest.mark.parametrize(
    "text",
    [
        version_1('<trans-unit id="1" translate="no"><source>a</source></trans-unit>'),
        version_1('<group translate="no"><trans-unit id="1"><source>a</source></trans-unit></group>'),
        version_1('<trans-unit id="1" approved="yes"><source>a</source><target state="new">b</target></trans-unit>'),
        version_1('<trans-unit id="1"><source>1 <x id="2"/></source></trans-unit>'),
        version_1(f'<trans-unit id="1"><source>a b</source><target>{MARKED.format("a", "")}</target></trans-unit>'),
        version_1('<trans-unit id="1"><source>a<x id="2"/></source><target><x id="2"/></target></trans-unit>'),
        version_1("<trans-unit id='1'><alt-trans><source>a</source></alt-trans></trans-unit>"),
    ],
)
def test_other_units_stay(text: str) -> None:
    assert write(parse(text)) == text


@pytest.mark.parametrize("language", ["", ' target-language="fr"', ' target-language="de-AT"'])
def test_a_file_names_the_target_language(language: str) -> None:
    unit = '<trans-unit id="1"><source>a</source></trans-unit>'
    text = f'<xliff version="1.2"><file source-language="en"{language}><body>{unit}{unit}</body></file></xliff>'
    written = ET.fromstring(write(parse(text)))  # noqa: S314 - the document of this test
    (file,) = written
    assert file.attrib["target-language"] == ("de-AT" if "AT" in language else "de")


def test_text_of_a_translation_never_becomes_markup() -> None:
    document = parse(version_1('<trans-unit id="1"><source>a</source></trans-unit>'))
    written = document.write(["</target><x> & \0"]).decode()
    assert '<target state="translated">&lt;/target&gt;&lt;x&gt; &amp; </target>' in written


@pytest.mark.parametrize(("text", "error"), CASES["another document is refused"])
def test_another_document_is_refused(text: str, error: str) -> None:
    with pytest.raises(DocumentError, match=error):
        parse(text)
