"""Files of other programs keep their bytes, but for the place of a text that changes. `make foreign` runs this."""

import os
from bisect import bisect_left
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from tests.foreign.files import ORIGINS, is_installed, packaged, written

FOLDER = os.environ.get("DRAGOMAN_FOREIGN", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="needs files of other programs: make foreign")
ORIGIN_NAMES = [
    (kind, suffix, name)
    for kind in ("packages", "writers")
    for suffix, names in ORIGINS[kind].items()
    for name in names
    if suffix != "pdf"
]
# Around a changed text, quotes, escapes and the space attribute of its element may change too.
MARKUP_BYTES = 200


def files_of(kind: str, suffix: str, name: str) -> Iterator[tuple[str, bytes]]:
    if kind == "writers" and not is_installed(suffix, name, Path(FOLDER)):
        pytest.skip(f"{name} is not installed")
    return (written if kind == "writers" else packaged)(suffix, name, Path(FOLDER))


@pytest.mark.parametrize(("kind", "suffix", "name"), ORIGIN_NAMES)
def test_files_of_other_programs_keep_their_bytes(kind: str, suffix: str, name: str) -> None:
    refused = dict[str, str]()
    number = 0
    for path, content in files_of(kind, suffix, name):
        number += 1
        try:
            document = parse_document(f"a.{suffix}", content, DocumentRequest())
        except DocumentError as error:
            refused[path] = str(error)
            continue
        check(path, content, document)
    print(f"{suffix} {name}: {number} files, {len(refused)} refused {refused or ''}")
    assert [path for path, reason in refused.items() if not is_expected(path, reason)] == []
    assert number > 0


@pytest.mark.parametrize("package", ORIGINS["packages"]["pdf"])
def test_pdf_files_of_packages_become_markdown(package: str) -> None:
    """What `markdown` names was compared with the pages."""
    expected, refused, parts = ORIGINS["markdown"][package], dict[str, str](), 0
    for path, content in packaged("pdf", package, Path(FOLDER)):
        try:
            document = parse_document("a.pdf", content, DocumentRequest())
        except DocumentError as error:
            refused[path] = str(error)
            continue
        parts += expected in document.write([segment.text for segment in document.segments]).decode()
    assert [path for path, reason in refused.items() if not is_expected(path, reason)] == []
    assert parts > 0


def is_expected(path: str, reason: str) -> bool:
    return any(part in path and expected in reason for part, expected in ORIGINS["refused"].items())


def check(path: str, content: bytes, document: Document) -> None:
    texts = [segment.text for segment in document.segments]
    assert document.write(texts) == content, path
    for place in sorted({0, len(texts) // 2, len(texts) - 1} & set(range(len(texts)))):
        changed = [*texts[:place], f"{texts[place]} b", *texts[place + 1 :]]
        before, after = (members(item) for item in (content, document.write(changed)))
        assert list(before) == list(after), path
        (one,) = (name for name in before if before[name] != after[name])
        assert differing(before[one], after[one]) <= 12 * len(texts[place].encode()) + MARKUP_BYTES, path


def members(content: bytes) -> dict[str, bytes]:
    if not content.startswith(b"PK"):
        return {"": content}
    with ZipFile(BytesIO(content)) as package:
        return {name: package.read(name) for name in package.namelist()}


def differing(before: bytes, after: bytes) -> int:
    """Returns the number of bytes from the first to the last one that changed."""
    return len(before) - common(before, after) - common(before[::-1], after[::-1])


def common(one: bytes, other: bytes) -> int:
    """Returns how many bytes at the start are equal."""
    return bisect_left(range(min(len(one), len(other))), True, key=lambda place: one[: place + 1] != other[: place + 1])
