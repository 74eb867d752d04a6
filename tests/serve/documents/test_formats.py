"""Documents of every text format: what is translated, and what stays."""

import json

import polib
import pytest
import yaml

from dragoman.serve.documents.document import DocumentError, DocumentRequest, Segment
from dragoman.serve.documents.formats import parse_document
from dragoman.serve.documents.subtitles import divide
from tests.support.cases import cases

CASES = cases(__file__)
DOCUMENTS: dict[str, str] = CASES["documents"]
PO: str = CASES["catalog"]

LANGUAGES = DocumentRequest("en", "de")
UNIT = "<xliff version='2.0'><file><unit><segment {}><source>{}</source></segment></unit></file></xliff>"


def write(name: str, text: str, translate: dict[str, str]) -> str:
    """Returns a document with the given translations, and its own texts where there are none."""
    document = parse_document(name, text.encode(), LANGUAGES)
    return document.write([translate.get(segment.text, segment.text) for segment in document.segments]).decode()


def texts(name: str, text: str) -> list[str]:
    return [segment.text for segment in parse_document(name, text.encode(), LANGUAGES).segments]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_whose_texts_do_not_change_keeps_every_byte(name: str) -> None:
    assert write(name, DOCUMENTS[name], {}) == DOCUMENTS[name]


@pytest.mark.parametrize(("name", "expected"), CASES["segments are what people read"])
def test_segments_are_what_people_read(name: str, expected: list[str]) -> None:
    assert texts(name, DOCUMENTS[name])[: len(expected)] == expected


@pytest.mark.parametrize(("name", "text", "translations", "expected"), CASES["a translation never becomes markup"])
def test_a_translation_never_becomes_markup(name: str, text: str, translations: dict[str, str], expected: str) -> None:
    assert write(name, text, translations) == expected


@pytest.mark.parametrize(("text", "expected"), CASES["anchors tags and lines of yaml stay"])
def test_anchors_tags_and_lines_of_yaml_stay(text: str, expected: str) -> None:
    document = parse_document("a.yaml", text.encode(), LANGUAGES)
    assert document.write([segment.text.upper() for segment in document.segments]).decode() == expected


@pytest.mark.parametrize(("text", "translation", "expected"), CASES["emphasis of markdown without words is left out"])
def test_emphasis_of_markdown_without_words_is_left_out(text: str, translation: str, expected: str) -> None:
    (segment,) = texts("a.md", text)
    assert write("a.md", text, {segment: translation}) == expected


@pytest.mark.parametrize(("text", "segment"), CASES["markup and invalid characters of html are points"])
def test_markup_and_invalid_characters_of_html_are_points(text: str, segment: str) -> None:
    text = text.format("1" * 12_000)
    assert texts("a.html", text) == [segment]
    assert write("a.html", text, {segment: segment.replace("A", "B\u00a0")}) == text.replace("A", "B&nbsp;")


def test_html_without_letters_to_translate_has_no_texts() -> None:
    assert texts("a.html", "<p>&#32;<p>1 <b>&nbsp;</b><p><code translate=no>A</code>") == []


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_hard_line_breaks_of_markdown_stay(line_end: str) -> None:
    text = "> a\\\n> b \\\nc  \n> d \ne\\\\\nf\\\n\n<p>g\n</p>\n".replace("\n", line_end)
    assert texts("a.md", text) == ["a", "b", "c", "d e\\ f\\", "g"]
    translations = {"a": "x", "b": "y", "c": "z", "d e\\ f\\": "w", "g": "v"}
    expected = "> x\\\n> y \\\nz  \n> w\n\n<p>v\n</p>\n".replace("\n", line_end)
    assert write("a.md", text, translations) == expected


def test_a_sentence_over_cues_goes_back_to_its_cues() -> None:
    translation = {"Hello my friend, how are you?": "Hallo mein Freund, wie geht es dir?"}
    written = write("a.srt", DOCUMENTS["a.srt"], translation)
    assert "<i>Hallo mein Freund,</i>" in written
    assert "<i>wie geht es dir?</i>" in written


def test_a_subtitle_is_wrapped_outside_of_its_tags() -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\n<i>One</i> two.\n"
    red = '<font color="red" size="20">'
    words = "These are a few more words than fit"
    written = write("a.srt", text.replace("<i>", red).replace("</i>", "</font>"), {
        '<g id="0">One</g> two.': f'{words} <g id="0">into one</g> line of it.',
    })  # fmt: skip
    assert written.splitlines()[2:] == [f"{words}", f"{red}into one</font> line of it."]


@pytest.mark.parametrize("between", [" ", "\t \n", " \n2", "2", "\n2"])
def test_cues_after_lines_of_blanks_are_cues_of_their_own(between: str) -> None:
    time = "00:00:0{},000 --> 00:00:0{},000\n"
    text = f"1\n{time.format(1, 2)}One.\n \nAnother.\n{between}\n{time.format(3, 4)}Two.\n"
    assert texts("a.srt", text) == ["One.  Another.", "Two."]
    assert write("a.srt", text, {"Two.": "Zwei."}) == text.replace("Two", "Zwei")


@pytest.mark.parametrize("weights", [[1], [1, 1], [5, 1, 3]])
@pytest.mark.parametrize("text", ["one", "one two three", "一二三四五"])
def test_a_divided_text_keeps_its_words(text: str, weights: list[int]) -> None:
    parts = divide(text, weights)
    assert len(parts) == len(weights)
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")


def test_a_long_text_is_divided_in_linear_time() -> None:
    assert list(map(len, divide("a " * 300_000, [1, 2]))) == [199_999, 399_999]


def test_po_gets_fuzzy_translations_where_it_had_none() -> None:
    assert texts("a.po", PO) == ["Hello %s", "one", "many"]
    written = write("a.po", PO, {"Hello %s": 'Hallo "%s"', "one": "eins", "many": "viele"})
    before, after = polib.pofile(PO), polib.pofile(written)
    for old, new in zip(before, after, strict=True):
        assert (old.msgctxt, old.msgid, old.occurrences) == (new.msgctxt, new.msgid, new.occurrences)
    hello, one, done, old = after
    assert (hello.msgstr, hello.flags) == ('Hallo "%s"\n', ["c-format", "fuzzy"])
    assert (one.msgstr_plural, one.flags) == ({0: "eins", 1: "viele"}, ["fuzzy"])
    assert (done.msgstr, done.fuzzy, old.obsolete) == ("fertig", False, True)


def test_written_files_are_read_by_their_libraries() -> None:
    assert json.loads(write("a.json", DOCUMENTS["a.json"], {"x y": 'a "b"\n'}))["b"][0] == 'a "b"\n'
    read = yaml.safe_load(write("a.yaml", DOCUMENTS["a.yaml"], {"plain text": "- x", "folded text": "y z"}))["de"]
    assert (read["a"], read["e"], read["g"]) == ("- x", "y z", ["one two", "it's"])


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.txt", b"\xff", "byte 0xff at offset 0, expected UTF-8"),
        ("a.exe", b"", "unknown format"),
        *(("a.json", content, "not JSON") for content in (b'{"a": ', b"[" * 100_000)),
        *(("a.yaml", content, "not YAML") for content in (b"a: [", b"[" * 100_000)),
        ("a.po", b"hello", "line 1: not PO"),
        ("a.html", b"<b>" * 300, "levels of elements"),
        ("a.xlf", b"", "not XML: no element"),
        ("a.xliff", b"%PDF-1.4", "not XML: no element"),
    ],
)
def test_a_malformed_document_is_refused_by_what_is_wrong(name: str, content: bytes, problem: str) -> None:
    with pytest.raises(DocumentError, match=problem):
        parse_document(name, content, LANGUAGES)


def test_long_numbers_of_json_stay() -> None:
    content = b'{"a": ' + b"9" * 5000 + b', "b": "dog"}'
    assert parse_document("a.json", content, LANGUAGES).write(["Hund"]) == content.replace(b"dog", b"Hund")


def test_a_po_file_keeps_its_line_ends() -> None:
    document = parse_document("a.po", b'msgid "dog"\r\nmsgstr ""\r\n', LANGUAGES)
    assert document.write(["Hund"]) == b'#, fuzzy\r\nmsgid "dog"\r\nmsgstr "Hund"\r\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "a" + "<!--x" * 40_000),
        ("a.md", "[" * 40_000 + "a" + "]" * 40_000),
        ("a.md", "a" + " " * 200_000 + "b"),
        ("a.md", "a" + "[^" * 100_000),
        ("a.md", "a <a" + "-a" * 100_000),
        ("a.srt", "1\n00:00:00,000 --> 00:00:01,000\na" + " " * 200_000 + "b\n"),
        ("a.po", 'msgid ""\nmsgstr ""\n' + '"\\" \\""\n' * 20_000 + f'\nmsgid "{"a" * 200_000}"\nmsgstr ""\n'),
        ("a.po", "#\n" * 100_000 + f'msgid "{"a" * 200_000}"\nmsgstr ""\n'),
        ("a.srt", "1\n00:00:00,000 --> 00:00:01,000\na" + " \n" * 100_000 + "b" * 100_000 + "\n"),
        ("a.srt", "1\n00:00:00,000 --> 00:00:01,000\n<" + "a" * 200_000 + "\n"),
        ("a.xlf", UNIT.format("", f"<{'a' * 200_000}/>{'b ' * 50_000}")),
        ("a.xlf", UNIT.format(" " * 200_000 + "id='1'", "b " * 50_000)),
    ],
)
def test_documents_take_linear_time(name: str, text: str) -> None:
    """In quadratic time, each of them would take minutes."""
    (segment,) = parse_document(name, text.encode(), LANGUAGES).segments
    assert len(segment.text) > 80_000


def test_lines_of_a_subtitle_become_one() -> None:
    text = "1\n00:00:00,000 --> 00:00:01,000\n- a b \t\r\n\t c  d\n e. \n"
    (segment,) = parse_document("a.srt", text.encode(), LANGUAGES).segments
    assert segment == Segment("a b c  d e.")


def test_aliases_of_yaml_are_not_expanded() -> None:
    laughs = "a0: &a0 ha ha\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    assert parse_document("a.yaml", laughs.encode(), LANGUAGES).segments == [Segment("ha ha")]


def test_a_file_in_utf_16_stays_in_it() -> None:
    document = parse_document("a.txt", "\ufeffHello\n".encode("utf-16-le"), LANGUAGES)
    assert document.write(["Grüße"]) == "\ufeffGrüße\n".encode("utf-16-le")


@pytest.mark.parametrize(("label", "encoding", "text"), CASES["a page has the encoding that browsers read"])
def test_a_page_has_the_encoding_that_browsers_read(label: str, encoding: str, text: str) -> None:
    page = f'<meta charset="{label}"><p>{text}</p><p>{{}}</p>'
    document = parse_document("a.html", page.format("a").encode(encoding), LANGUAGES)
    assert [segment.text for segment in document.segments] == [text, "a"]
    assert document.write([text, f"{text}\u0e01"]) == page.format(f"{text}\u0e01").encode(encoding, "xmlcharrefreplace")


def test_white_space_around_the_text_of_a_page_stays() -> None:
    text = "<p>\u3000\u3000a\u3000</p><p> \u00a0\n<b>b</b> c\u00a0 </p>"
    document = parse_document("a.html", text.encode(), LANGUAGES)
    assert [segment.text for segment in document.segments] == ["a", '<g id="0">b</g> c']
    written = document.write(["A", '<g id="0">B</g> C']).decode()
    assert written == text.replace("a", "A").replace("b>b", "b>B").replace(" c", " C")


def test_translated_and_fuzzy_messages_of_po_are_translated_again_only_on_request() -> None:
    text = 'msgid "one"\nmsgstr "eins"\n\n#, fuzzy\nmsgid "two"\nmsgstr "zwo"\n\nmsgid "three"\nmsgstr ""\n'
    again = parse_document("a.po", text.encode(), DocumentRequest("en", "de", retranslate=True))
    assert texts("a.po", text) == ["three"]
    assert [segment.text for segment in again.segments] == ["one", "two", "three"]
    written = polib.pofile(again.write(["1", "2", "3"]).decode())
    assert [(item.msgstr, item.flags) for item in written] == [("1", ["fuzzy"]), ("2", ["fuzzy"]), ("3", ["fuzzy"])]


def test_a_language_without_a_plural_has_the_form_of_many() -> None:
    document = parse_document("a.po", b'msgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n', LANGUAGES)
    assert document.segments == [Segment("%d files")]
    assert polib.pofile(document.write(["%d Dateien"]).decode())[0].msgstr_plural == {0: "%d Dateien"}


@pytest.mark.parametrize(("charset", "encoding"), CASES["a po file in another charset becomes utf 8"])
def test_a_po_file_in_another_charset_becomes_utf_8(charset: str, encoding: str) -> None:
    comment = {"ascii": "", "gb2312": "\u4e2d"}.get(encoding, "\u00e9")
    text = (
        f'# {comment}\n\nmsgid ""\nmsgstr ""\n"MIME-Version: 1.0\\n"\n"Content-Type: text/plain; charset={{}}\\n"\n\n'
        '#, fuzzy\nmsgid "charset=CHARSET"\nmsgstr ""\n'
    )
    document = parse_document("a.po", text.format(charset).encode(encoding), LANGUAGES)
    written = document.write(["\u0416"]).decode()
    name = charset if charset == "utf-8" else "UTF-8"
    assert written == text.format(name).removesuffix('""\n') + '"\u0416"\n'
