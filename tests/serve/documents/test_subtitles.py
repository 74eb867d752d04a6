"""Subtitles: what stays besides times and tags, and which texts share a segment."""

import pytest

from dragoman.serve.documents.document import DocumentRequest
from dragoman.serve.documents.formats import parse_document
from tests.support.cases import cases

CASES = cases(__file__)

LANGUAGES = DocumentRequest("en", "de")
CUE = "1\n00:00:01,000 --> 00:00:02,000\n{}\n\n"


def translate(text: str, name: str = "a.srt") -> tuple[list[str], str]:
    """Returns the texts of a document, and the document with them in capitals."""
    document = parse_document(name, text.encode(), LANGUAGES)
    texts = [segment.text for segment in document.segments]
    assert document.write(texts) == text.encode()
    return texts, document.write([sentence.upper() for sentence in texts]).decode()


@pytest.mark.parametrize(("text", "texts", "written"), CASES["marks of speakers and sounds stay"])
def test_marks_of_speakers_and_sounds_stay(text: str, texts: list[str], written: str) -> None:
    assert translate(CUE.format(text)) == (texts, CUE.format(written))


def test_a_sound_shares_no_segment_with_the_text_before_it() -> None:
    later = CUE.replace("1,000", "3,000").replace("2,000", "2,500")
    texts, _ = translate(CUE.format("The man") + later.format("(cries)") + later.format("and goes"))
    assert texts == ["The man", "cries", "and goes"]


@pytest.mark.parametrize("end", ["9" * 60_000, "0" * 300_000])
def test_a_time_of_many_digits_takes_linear_time(end: str) -> None:
    """In quadratic time, the first one would take minutes."""
    text = f"1\n00:00:01,000 --> 00:00:02,{end}"
    assert translate(text) == ([], text)


def test_a_reference_with_many_digits_is_a_character() -> None:
    texts, _ = translate(f"WEBVTT\n\n00:01.000 --> 00:02.000\na &#{'9' * 5000} &#98;\n", "a.vtt")
    assert texts == ["a \ufffd b"]
