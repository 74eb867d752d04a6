"""A read document has few objects: garbage collections, which stop all threads, traverse them."""

import gc
from collections.abc import Iterator

import pytest

from dragoman.serve.documents.document import DocumentRequest
from dragoman.serve.documents.formats import parse_document
from dragoman.serve.documents.translation import DistinctSegments
from tests.support.cases import cases

CASES = cases(__file__)

COUNT = 500
# A segment, and a function for its translation with arguments.
MAX_OBJECTS = 3.5


@pytest.fixture(scope="module", autouse=True)
def _collections_of_new_objects_alone() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize(("name", "head", "text"), CASES["each text of a document is few objects"])
def test_each_text_of_a_document_is_few_objects(name: str, head: str, text: str) -> None:
    content = head + "".join(text.format(number) for number in range(COUNT))
    if name.endswith("json"):
        content = f"{content[:-1]}]"
    parse_document(name, content.encode(), DocumentRequest())  # fills caches
    gc.collect()
    before = len(gc.get_objects())
    read = DistinctSegments(parse_document(name, content.encode(), DocumentRequest()))
    gc.collect()
    gc.collect()  # tuples of tuples
    assert len(gc.get_objects()) - before < MAX_OBJECTS * COUNT
    assert len(read.segments) >= COUNT


def test_equal_texts_of_a_document_are_one_object() -> None:
    content = b"# a\n" * COUNT
    parse_document("a.md", content, DocumentRequest())
    gc.collect()
    before = len(gc.get_objects())
    document = parse_document("a.md", content, DocumentRequest())
    gc.collect()
    gc.collect()
    assert len(document.segments) == COUNT
    assert len(gc.get_objects()) - before < 0.1 * COUNT
