"""Hostile documents of structured formats take time and memory in proportion to their size, or are refused."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.documents import office_runs, splice, yaml
from dragoman.serve.documents.document import DocumentError, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from dragoman.serve.protect.markup.xml import scan_xml
from tests.support.attacks.hostile_office import ATTACKS, MEBIBYTE, REQUEST, Attack, changed, draw, measure

# Most attacks of this size take 15 seconds or a hundred megabytes if a reader needs quadratic time or memory.
SIZE_BYTES = MEBIBYTE // 8
MAX_PEAK_BYTES = 50 * MEBIBYTE
CPU_SECONDS = 12
RANDOM = Random(20260101)
SOME = RANDOM.sample(sorted(ATTACKS), 8)
DRAWN = [draw(RANDOM) for _ in range(6)]


def check(attack: Attack, size_bytes: int, max_peak_bytes: int = MAX_PEAK_BYTES) -> str:
    """Reads and writes a document, and returns why it was refused."""
    cost = measure(f"a.{attack.format}", attack.make(size_bytes), CPU_SECONDS)
    assert cost.peak_bytes < max_peak_bytes, f"{cost.peak_bytes / MEBIBYTE:.0f} MiB"
    return cost.problem


@pytest.mark.parametrize("name", SOME)
def test_known_attacks_take_little(name: str) -> None:
    check(ATTACKS[name], SIZE_BYTES)


@pytest.mark.parametrize("number", range(len(DRAWN)))
def test_pieces_of_a_format_in_any_order_take_little(number: int) -> None:
    check(DRAWN[number], SIZE_BYTES // 4)


@given(st.randoms(use_true_random=False), st.integers(1, 1000))
def test_any_document_whose_texts_do_not_change_keeps_every_byte(random: Random, size_bytes: int) -> None:
    attack = draw(random)
    content = attack.make(size_bytes)
    try:
        document = parse_document(f"a.{attack.format}", content, REQUEST)
    except DocumentError:
        return
    if attack.format not in ("xlf", "po"):  # these get translations in another place
        assert document.write([segment.text for segment in document.segments]) == content
    parse_document(f"a.{attack.format}", document.write([changed(segment) for segment in document.segments]), REQUEST)


@pytest.mark.parametrize(
    "name",
    [
        *("docx run of tabs", "docx run of points", "docx run of fields", "docx run of namespaces"),
        *("pptx run of texts", "docx nested barriers", "docx nested fields", "po lines"),
    ],
)
def test_repeated_and_nested_parts_take_linear_memory_and_time(name: str) -> None:
    assert check(ATTACKS[name], SIZE_BYTES, 20 * MEBIBYTE) == ""


@pytest.mark.parametrize("name", ["po long wide text", "po escapes", "json long text", "yaml long text"])
def test_one_long_text_takes_at_most_35_times_its_size(name: str) -> None:
    assert check(ATTACKS[name], 2 * MEBIBYTE, 35 * 2 * MEBIBYTE) == ""


def test_a_translation_that_repeats_long_properties_too_often_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, end = '<w:p><w:r><w:rPr><w:rStyle w:val="{}"/></w:rPr><w:t>a b</w:t></w:r>', "<w:r><w:t>.</w:t></w:r></w:p>"
    attack = Attack("docx", begin, "<w:fldSimple/>", padding="a" * 20)._replace(end=end)
    document = parse_document("a.docx", attack.make(1000), DocumentRequest())
    (segment,) = document.segments
    moved = segment.text.replace("<x", "b<x")
    document.write([moved])
    monkeypatch.setattr(office_runs, "MAX_PROPERTIES_CHARACTERS", 5000)
    with pytest.raises(DocumentError, match=r"more than 5,000 characters of formatting"):
        document.write([moved])


def test_translations_that_are_too_long_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splice, "MAX_WRITTEN_CHARACTERS", 1000)
    document = parse_document("a.json", b'["a","b"]', DocumentRequest())
    document.write(["x" * 400, "y" * 400])
    with pytest.raises(DocumentError, match="the translations have more than 1,000 characters"):
        document.write(["x" * 600, "y" * 600])


def test_a_long_comment_takes_linear_time() -> None:
    """Expat 2.5 reads it from its start with each chunk."""
    text = f"<a><!--{'b' * (8 * MEBIBYTE)}--></a>"
    assert [token.end for token in scan_xml(text)] == [3, len(text) - 4, len(text)]


def test_many_directives_of_yaml_are_refused() -> None:
    lines = [f"%TAG !a{number}! b\n" for number in range(yaml.MAX_DIRECTIVES)]
    assert len(parse_document("a.yaml", f"{''.join(lines)}--- a\n".encode(), DocumentRequest()).segments) == 1
    text = f"{''.join(lines)}%TAG !b! c\n--- a\n"
    with pytest.raises(DocumentError, match="more than 100 directives"):
        parse_document("a.yaml", text.encode(), DocumentRequest())


@pytest.mark.parametrize("number", ["0" * 5000 + "65", "x" + "0" * 5000 + "41"])
def test_a_reference_of_many_digits_is_one_character(number: str) -> None:
    content = f'<xliff version="1.2"><trans-unit><source>a&#{number};</source></trans-unit></xliff>'
    assert [segment.text for segment in parse_document("a.xlf", content.encode(), DocumentRequest()).segments] == ["aA"]
