"""Files of strings of programs: what is translated, and how translations are written."""

import re

import pytest

from dragoman.serve.documents.document import DocumentError, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from tests.support.cases import cases
from tests.support.segments import in_capitals

CASES = cases(__file__)
REQUEST = DocumentRequest("en", "de")
QT = '<!DOCTYPE TS>\n<TS version="2.1"{}><context><name>no</name><message>{}</message></context></TS>\n'


@pytest.mark.parametrize(("name", "text", "expected", "written"), CASES["files of strings"])
def test_values_are_translated_and_all_else_stays(name: str, text: str, expected: list[str], written: str) -> None:
    document = parse_document(name, text.encode(), REQUEST)
    assert [segment.text for segment in document.segments] == expected
    assert document.write(expected).decode() == text
    assert document.write([in_capitals(segment) for segment in document.segments]).decode() == written


@pytest.mark.parametrize(("name", "text", "translation", "written"), CASES["a translation never ends a string"])
def test_a_translation_never_ends_a_string(name: str, text: str, translation: str, written: str) -> None:
    assert parse_document(name, text.encode(), REQUEST).write([translation]).decode() == written


@pytest.mark.parametrize(("name", "text", "problem"), CASES["another file is refused"])
def test_another_file_is_refused(name: str, text: str, problem: str) -> None:
    with pytest.raises(DocumentError, match=re.escape(problem)):
        parse_document(name, text.encode(), REQUEST)


@pytest.mark.parametrize(("message", "expected", "written"), CASES["messages of qt"])
def test_messages_of_qt_without_a_translation_are_translated(message: str, expected: list[str], written: str) -> None:
    document = parse_document("a.ts", QT.format("", message).encode(), REQUEST)
    assert [segment.text for segment in document.segments] == expected
    again = parse_document("a.ts", QT.format("", message).encode(), DocumentRequest("en", "de", retranslate=True))
    after = again.write([in_capitals(segment) for segment in again.segments]).decode()
    language = ' language="de"' if again.segments else ""
    assert after == QT.format(language, f"{message.partition('<translation')[0]}{written}")


def test_a_file_of_properties_in_latin_1_stays_in_it() -> None:
    content = "a=Gr\u00fc\u00dfe\nb=\u00e9 x".encode("latin-1")
    document = parse_document("a.properties", content, REQUEST)
    assert document.write([document.segments[0].text, "\u0416"]) == b"a=Gr\xfc\xdfe\nb=\\u0416"


def test_strings_in_utf_16_stay_in_it() -> None:
    document = parse_document("a.strings", '\ufeff"a" = "dog";'.encode("utf-16-be"), REQUEST)
    assert document.write(["Hund"]) == '\ufeff"a" = "Hund";'.encode("utf-16-be")
