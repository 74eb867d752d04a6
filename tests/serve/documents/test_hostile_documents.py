"""Hostile documents: clear errors, and no more memory than the limits allow."""

import re
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_LZMA, ZIP_STORED, ZipFile, ZipInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.documents import json, office, xml
from dragoman.serve.documents.document import DocumentError, DocumentRequest
from dragoman.serve.documents.formats import FORMATS, parse_document
from dragoman.serve.documents.inline import ItemKind
from dragoman.serve.documents.markdown_inline import InlineReader, InlineSyntax
from dragoman.serve.documents.package import MAX_MEMBERS, Package
from tests.support.cases import cases

CASES = cases(__file__)

MEBIBYTE = 1 << 20
REQUEST = DocumentRequest("en", "de", unpacked_bytes=8 * MEBIBYTE)
LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><x>&c;</x>'
)
EXTERNAL = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>'
PACKED = ("docx", "pptx", "odt", "odp", "epub")


@contextmanager
def at_most(size_bytes: int) -> Iterator[None]:
    """Checks the peak of the memory that Python allocates."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size_bytes, f"{peak / MEBIBYTE:.0f} MiB"


def pack(*members: tuple[str, bytes], method: int = ZIP_DEFLATED) -> bytes:
    stream = BytesIO()
    with ZipFile(stream, "w", method) as file:
        for name, data in members:
            file.writestr(ZipInfo(name), data, method)
    return stream.getvalue()


def refused(name: str, content: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        parse_document(name, content, REQUEST)


@pytest.mark.parametrize("markup", [LAUGHS, EXTERNAL])
@pytest.mark.parametrize("name", ["xlf", *PACKED])
def test_entities_are_refused(name: str, markup: str) -> None:
    content = markup.encode()
    if name in PACKED:
        members = ("[Content_Types].xml", "content.xml", "META-INF/container.xml")
        content = pack(*((member, content) for member in members))
    refused(f"a.{name}", content, "internal DTD subset, expected none")


def compound(*names: str) -> bytes:
    """Returns the beginning of a compound file with streams of the given names."""
    content = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".ljust(512, b"\0")
    for name in names:
        content += f"{name}\0".encode("utf-16-le").ljust(64, b"\0") + struct.pack("<H", 2 * len(name) + 2) + bytes(62)
    return content


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (compound("Root Entry", "EncryptionInfo", "EncryptedPackage"), "encrypted with a password: save it without"),
        (compound("Root Entry", "1Table", "WordDocument"), r"an old Word document \(.doc\): save it as .docx"),
        (compound("Root Entry", "PowerPoint Document"), r"an old PowerPoint presentation \(.ppt\): save it as .pptx"),
        (compound("Root Entry", "Workbook"), r"an old Excel workbook \(.xls\): save it as .xlsx"),
        (compound("Root Entry", "Contents"), "an old file of Microsoft Office: save it as .docx, .xlsx or .pptx"),
        (compound("Root Entry", "Word") + "aWordDocument\0".encode("utf-16-le"), "an old file of Microsoft Office"),
        (b"{\\rtf1 a}", r"Rich Text Format \(.rtf\): save it as .docx"),
        (b"%PDF-1.7", "a PDF file"),
    ],
)
def test_a_file_of_another_kind_is_named(name: str, content: bytes, problem: str) -> None:
    refused(f"a.{name}", content, problem)


@pytest.mark.parametrize("name", ["odt", "odp"])
def test_an_encrypted_opendocument_is_named(name: str) -> None:
    manifest = b"<m:manifest xmlns:m='m'><m:file-entry><m:encryption-data/></m:file-entry></m:manifest>"
    old = pack(("content.xml", b"\x01\x02"), ("META-INF/manifest.xml", manifest))
    new = pack(("encrypted-package", b"\x01\x02"), ("META-INF/manifest.xml", b"<m/>"))
    for content in (old, new):
        refused(f"a.{name}", content, "encrypted with a password: save it without the password")


@pytest.mark.parametrize("name", PACKED)
def test_what_is_no_package_is_refused(name: str) -> None:
    refused(f"a.{name}", b"text", "not a ZIP package")
    refused(f"a.{name}", pack(("other", b"")), "not a document of this format: no member")


def test_a_package_that_unpacks_to_too_much_is_refused_before_it_is_unpacked() -> None:
    many = pack(*((f"{number}", b"\0" * MEBIBYTE) for number in range(9)))
    large = pack(("content.xml", b"\0" * (8 * MEBIBYTE - 1)))
    with at_most(MEBIBYTE):
        refused("a.odt", many, "more than 8388608 bytes unpacked")
        refused("a.odt", large, "'content.xml': compressed more than 250 times")


def test_a_member_whose_size_is_a_lie_is_refused() -> None:
    content = pack(("content.xml", b"\0" * 7 * MEBIBYTE))
    directory = content.index(b"PK\1\2")
    lie = content[: directory + 24] + struct.pack("<L", 100) + content[directory + 28 :]
    with at_most(MEBIBYTE):
        refused("a.odt", lie, "content.xml: damaged")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "\\x", "..\\x", "C:/x"])
def test_paths_that_leave_the_package_are_refused(name: str) -> None:
    refused("a.odt", pack((name, b"")), "expected a path inside of the package")


def test_other_packages_are_refused() -> None:
    refused("a.odt", pack(*((str(number), b"") for number in range(MAX_MEMBERS + 1))), "5001 members")
    refused("a.odt", pack(("content.xml", b"x"), method=ZIP_LZMA), "compression method 14, expected deflate")
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = pack(("x", b"1"), ("x", b"2"))
    refused("a.odt", twice, "'x': expected once")
    plain = pack(("content.xml", b"x"), method=ZIP_STORED)
    directory = plain.index(b"PK\1\2")
    encrypted = plain[: directory + 8] + b"\1" + plain[directory + 9 :]
    refused("a.odt", encrypted, "encrypted with a password: save it without the password")
    refused("a.odt", plain.replace(b"content.xmlx", b"content.xmly"), "content.xml: damaged")
    patched = plain[: directory + 8] + b"\x20" + plain[directory + 9 :]
    refused("a.odt", patched, "content.xml: damaged")


def test_members_that_share_bytes_are_refused() -> None:
    """Each would be copied into the result."""
    stream = BytesIO()
    with ZipFile(stream, "w") as file:
        file.writestr("a", b"x" * 1000)
        info = file.getinfo("a")
        for name in "bcd":
            twin = ZipInfo(name)
            twin.header_offset, twin.CRC = info.header_offset, info.CRC
            twin.file_size = twin.compress_size = 1000
            file.filelist.append(twin)
            file.NameToInfo[name] = twin
    refused("a.odt", stream.getvalue(), "members overlap")


def test_a_replaced_member_keeps_all_others() -> None:
    content = pack(("mimetype", b"x"), ("ä.xml", b"<a/>"), ("media/1", bytes(range(256))))
    with ZipFile(BytesIO(Package(content, MEBIBYTE).replace({"ä.xml": b"<b/>"}))) as file:
        assert file.testzip() is None
        members = {name: file.read(name) for name in file.namelist()}
    assert members == {"mimetype": b"x", "ä.xml": b"<b/>", "media/1": bytes(range(256))}


@pytest.mark.parametrize(
    "name", sorted(FORMATS.keys() - {f".{name}" for name in (*PACKED, "arb", "htm", "pot", "tsv", "xliff", "yml")})
)
def test_megabytes_of_one_character_are_read_or_refused(name: str) -> None:
    """Markdown takes 4 seconds per megabyte."""
    content = b"<" * (100_000 if name in (".md", ".markdown") else 3_000_000)
    try:
        document = parse_document(f"a{name}", content, REQUEST)
    except DocumentError:
        return
    assert document.write([segment.text for segment in document.segments]) == content


@pytest.mark.parametrize("name", ["xlf", "odt"])
def test_deep_and_numerous_elements_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml, "MAX_TOKENS", 1000)

    def make(inner: str) -> bytes:
        text = f'<xliff version="1.2">{inner}</xliff>'.encode()
        return pack(("content.xml", text), method=ZIP_STORED) if name == "odt" else text

    refused(f"a.{name}", make("<g>" * 300 + "</g>" * 300), "more than 200 levels of elements")
    refused(f"a.{name}", make("<g/>" * 1001), "more than 1000 tags and texts")


@pytest.mark.parametrize(("name", "head", "text", "end"), CASES["numerous texts are refused"])
def test_numerous_texts_are_refused(name: str, head: str, text: str, end: str) -> None:
    content = f"{head}{3 * text}{end}".encode()
    parse_document(name, content, replace(REQUEST, max_texts=3))
    with pytest.raises(DocumentError, match="more than 2 texts: divide the document"):
        parse_document(name, content, replace(REQUEST, max_texts=2))


def test_numerous_lists_and_objects_of_json_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "MAX_COLLECTIONS", 3)
    parse_document("a.json", b'[{},["a"]]', REQUEST)
    refused("a.json", b'[{},["a"],[]]', "more than 3 lists and objects: divide the document")


def test_a_large_part_with_text_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(office, "MAX_MEMBER_BYTES", 100)
    part = b'<a xmlns:text="b"><text:p>c</text:p>%b</a>'
    parse_document("a.odt", pack(("content.xml", part % b""), ("media/a.png", bytes(1000))), REQUEST)
    refused("a.odt", pack(("content.xml", part % b"d" * 100)), "expected at most 100 of a part with text")


def test_the_texts_of_all_members_count() -> None:
    member = b'<a xmlns:text="b"><text:p>c</text:p><text:p>d</text:p></a>'
    package = pack(("content.xml", member), ("styles.xml", member))
    parse_document("a.odt", package, replace(REQUEST, max_texts=4))
    with pytest.raises(DocumentError, match=r"styles\.xml: more than 3 texts: divide the document"):
        parse_document("a.odt", package, replace(REQUEST, max_texts=3))


@pytest.mark.parametrize("run", [*"<>&!*_~`[]|#\\h ", "![", "<!"])
def test_a_run_of_a_character_of_markdown_has_at_most_half_as_many_parts(run: str) -> None:
    raw = f"a{run * 10_000}b"
    assert len(InlineReader(raw, InlineSyntax()).read()) <= 5002


def test_a_paragraph_with_too_many_parts_is_refused() -> None:
    refused("a.md", b"*a* " * 10_000, "a paragraph has more than 20,000 tags and texts")


@given(st.text("`a", max_size=30))
def test_code_ends_at_the_next_run_of_as_many_backticks(raw: str) -> None:
    expected, place = list[str](), 0
    while run := re.compile("`+").search(raw, place):
        end = re.compile(rf"(?<!`){run[0]}(?!`)").search(raw, run.end())
        place = run.end() if end is None else end.end()
        if end is not None:
            expected.append(raw[run.start() : place])
    assert [item.raw for item in InlineReader(raw, InlineSyntax()).read() if item.kind is ItemKind.KEPT] == expected
