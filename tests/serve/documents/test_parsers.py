"""Parsed documents that a process keeps for their translations."""

from dataclasses import asdict

import pytest

from dragoman.serve.documents import parsers
from dragoman.serve.documents.document import Document, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from dragoman.serve.sandbox.frames import Item
from dragoman.serve.sandbox.worker import MAX_SMALL_INPUT_BYTES

REQUEST = DocumentRequest("en", "de")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Returns the documents that have been parsed, in their order."""
    found = list[bytes]()

    def note(name: str, data: bytes, request: DocumentRequest) -> Document:
        found.append(data)
        return parse_document(name, data, request)

    monkeypatch.setattr(parsers, "parse_document", note)
    parsers._kept.clear()
    return found


def parse(data: bytes, request: DocumentRequest = REQUEST) -> None:
    list(parsers.PARSERS[parsers.PARSE](["a.txt", asdict(request), data]))


def write(data: bytes, translation: str = "ein Hund") -> Item:
    (written,) = parsers.PARSERS[parsers.WRITE](["a.txt", asdict(REQUEST), data, translation])
    return written


def test_a_small_document_is_parsed_once_to_be_translated(parsed: list[bytes]) -> None:
    parse(b"a dog")
    assert write(b"a dog") == b"ein Hund"
    assert parsed == [b"a dog"]


def test_a_document_is_kept_until_it_is_written(parsed: list[bytes]) -> None:
    parse(b"a dog")
    assert write(b"a dog") == write(b"a dog")
    assert parsed == [b"a dog"] * 2
    assert not parsers._kept


def test_a_document_of_another_request_is_parsed_again(parsed: list[bytes]) -> None:
    parse(b"a dog", DocumentRequest("en", "fr"))
    write(b"a dog")
    assert parsed == [b"a dog"] * 2


def test_a_large_document_is_parsed_again(parsed: list[bytes]) -> None:
    data = b"a" * (MAX_SMALL_INPUT_BYTES + 1)
    parse(data)
    write(data)
    assert parsed == [data] * 2


def test_the_documents_that_are_translated_at_once_are_kept(parsed: list[bytes]) -> None:
    documents = [b"dog %d" % number for number in range(parsers.MAX_KEPT_DOCUMENTS + 1)]
    for data in documents:
        parse(data)
    for data in reversed(documents):
        write(data)
    assert parsed == [*documents, documents[0]]
