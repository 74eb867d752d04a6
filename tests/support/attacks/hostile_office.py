"""Hostile documents of structured formats, of any size, and what they cost."""

import gc
import json
import os
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

from dragoman.serve.documents.document import DocumentError, DocumentRequest, Segment
from dragoman.serve.documents.formats import parse_document
from tests.support.cases import cases
from tests.support.packages import EBOOK

MEBIBYTE = 1 << 20
REQUEST = DocumentRequest("en", "de", max_texts=250_000)
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
_TYPES = '<Types><Override PartName="/{}" ContentType="application/vnd.openxmlformats-officedocument.{}+xml"/></Types>'
_PART_PER_NOISE = 150
# Stands for a number of its own.
NUMBER = "\0"


def _docx(body: str) -> bytes:
    part = f'<w:document xmlns:w="{_WORD}" xmlns:r="urn:r"><w:body>{body}</w:body></w:document>'
    return _pack(_TYPES.format("word/document.xml", "wordprocessingml.document.main"), "word/document.xml", part)


def _pptx(body: str) -> bytes:
    part = f'<a:x xmlns:a="{_DRAWING}">{body}</a:x>'
    return _pack(_TYPES.format("ppt/slides/slide1.xml", "presentationml.slide"), "ppt/slides/slide1.xml", part)


def _odt(body: str) -> bytes:
    return _pack("<x/>", "content.xml", f'<o:d xmlns:o="o" xmlns:text="t" xmlns:draw="d">{body}</o:d>')


def _epub(body: str) -> bytes:
    return _pack("<x/>", "page.xhtml", f"<html><body>{body}</body></html>", EBOOK)


def _pack(types: str, name: str, part: str, others: Mapping[str, str] = MappingProxyType({})) -> bytes:
    # Keeps the ratio of the package below its limit.
    noise = Random(len(part)).randbytes(len(part) // _PART_PER_NOISE).hex()
    stream = BytesIO()
    with ZipFile(stream, "w", ZIP_DEFLATED) as file:
        file.writestr("[Content_Types].xml", types)
        file.writestr(name, f"<!--{noise}-->{part}")
        for other, text in others.items():
            file.writestr(other, text)
    return stream.getvalue()


def _xliff(body: str) -> bytes:
    return f'<xliff version="1.2"><file>{body}</file></xliff>'.encode()


# The documents are of the formats that are no plain text.
WRITERS: dict[str, Callable[[str], bytes]] = {"docx": _docx, "pptx": _pptx, "odt": _odt, "xlf": _xliff, "epub": _epub}


class Attack(NamedTuple):
    """Marks of a format, repeated between a beginning and an end.

    Attributes:
        format: end of the name of the file.
        mirrored: repeated as often after the middle.
        padding: repeated once for each of the others in one place of the beginning, marked by `{}`.
    """

    format: str
    beginning: str
    repeated: str
    middle: str = ""
    mirrored: str = ""
    end: str = ""
    padding: str = ""

    def make(self, size_bytes: int) -> bytes:
        """Returns a document of about a size, before it is packed."""
        count = max(1, size_bytes // len(self.repeated + self.mirrored + self.padding))
        beginning = self.beginning.replace("{}", self.padding * count)
        text = f"{beginning}{self.repeated * count}{self.middle}{self.mirrored * count}{self.end}"
        return WRITERS.get(self.format, str.encode)(_numbered(text))


def _numbered(text: str) -> str:
    """Returns a text with a number in place of each mark for one."""
    first, *others = text.split(NUMBER)
    return "".join((first, *(f"{number}{part}" for number, part in enumerate(others))))


_BEGIN = '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
_SEPARATE = '<w:r><w:fldChar w:fldCharType="separate"/></w:r>'
_END = '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
_LINK = "<w:r><w:instrText> HYPERLINK a </w:instrText></w:r>"
_PO_HEAD = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
_DIRECTIVES = "".join(f"%TAG !a{number}! b\n" for number in range(100))
ATTACKS = {name: Attack(name.split()[0], **fields) for name, fields in cases(__file__).items()} | {
    "yaml tags of directives": Attack("yaml", f"{_DIRECTIVES}---\n", "- !a99!a b\n"),
    "yaml texts of a deep level": Attack("yaml", "[" * 190, "a,", end="]" * 190),
}


class _Grammar(NamedTuple):
    """Complete pieces in any order, and pairs around pieces, of which random documents of a format consist."""

    beginning: str
    pieces: Sequence[str]
    pairs: Sequence[tuple[str, str]]
    end: str


_TEXTS = ("a", " ", "&amp;", "&#65;", "<!-- a -->", "<?a b?>", "<![CDATA[<]]>", "<b/>")
_RUNS = (
    *("<w:r><w:t>a</w:t><w:tab/></w:r>", "<w:r><w:t> </w:t><w:sym/></w:r>", "<w:proofErr/>"),
    *("<w:r><w:rPr><w:b/></w:rPr><w:t>a</w:t></w:r>", _BEGIN, _SEPARATE, _END, _LINK),
    "<w:r><w:drawing><w:p><w:r><w:t>a</w:t></w:r></w:p></w:drawing></w:r>",
    '<w:r><w:fldChar w:fldCharType="begin"/><w:t>a</w:t></w:r>',
    '<w:r><w:t>a</w:t><w:fldChar w:fldCharType="end"/></w:r>',
)
_LINKS = [("<w:hyperlink>", "</w:hyperlink>"), ("<w:sdt>", "</w:sdt>"), (_BEGIN, _END)]
_CODES = ("<x/>", '<bx id="1"/>', '<ex id="1"/>', "<mrk>a</mrk>")
_VALUES = (
    *("a", " ", "<b>", "</b>", "<br>", "<code>", "<", "&amp;", "&", "%s", "\\n"),
    *("{n}", "{n, plural, other {", "}", "''"),
)
_ITEMS = ('"\n- "', '"\n- a <b>b</b>\n- "', "\n  ", '"\n- |\n  a\n- "')
_MESSAGES = ('"\n"', '"\nmsgstr ""\n\nmsgid "', '"\nmsgid_plural "')
_SPANS = [("<text:span>", "</text:span>")]
_GRAMMARS = {
    "docx": _Grammar("<w:p>", _RUNS, _LINKS, "</w:p>"),
    "epub": _Grammar("<p>", (*_TEXTS, "<br/>", "</p><p>", "<table/>"), [("<i>", "</i>")], "</p>"),
    "csv": _Grammar("", (*_VALUES, ",", '"', "\n", '"a"', '""', ";", "=a"), [("", "")], ""),
    "odt": _Grammar("<text:p>", (*_TEXTS, "<text:s/>", "<text:tab/>", "<text:p>a</text:p>"), _SPANS, "</text:p>"),
    "xlf": _Grammar("<trans-unit><source>", (*_TEXTS, *_CODES), [("<g>", "</g>")], "</source></trans-unit>"),
    "json": _Grammar('{"a":["', (*_VALUES, '","', '",{"b":"c"},"', "\\u003c"), [('",["', '"],"')], '"]}'),
    "yaml": _Grammar('- "', (*_VALUES, *_ITEMS), [('"\n- ["', '"]\n- "')], '"\n'),
    "po": _Grammar(f'{_PO_HEAD}msgid "', (*_VALUES, *_MESSAGES), [("<b>", "</b>")], '"\nmsgstr ""\n'),
}


def draw(random: Random) -> Attack:
    name = random.choice(tuple(_GRAMMARS))
    grammar = _GRAMMARS[name]
    opening, closing = random.choice((*grammar.pairs, ("", "")))

    def pieces(least: int) -> str:
        return "".join(random.choices(grammar.pieces, k=random.randrange(least, 4)))

    return Attack(name, grammar.beginning, pieces(1) + opening, pieces(0), closing + pieces(0), grammar.end)


@dataclass(frozen=True, slots=True)
class Cost:
    """What reading and writing of a document costs, beyond earlier memory; `problem`: why it was refused."""

    cpu_seconds: float
    peak_bytes: int
    written_bytes: int
    problem: str


def measure(name: str, content: bytes, limit_seconds: int = 0) -> Cost:
    """Reads a document and writes it with other texts, in a process of its own with limited time of the CPU."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            # A collection would finalize what earlier tests left, such as objects of gRPC, which a fork must not touch.
            gc.freeze()
            if limit_seconds:
                resource.setrlimit(resource.RLIMIT_CPU, (limit_seconds, limit_seconds))
            os.write(writing, json.dumps(_cost(name, content)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        data = answer.read()
    os.waitpid(child, 0)
    assert data, f"{name}: the process ended, or took more than {limit_seconds} seconds of the CPU"
    return Cost(*json.loads(data))


def _cost(name: str, content: bytes) -> tuple[float, int, int, str]:
    begun_seconds, written, problem = _cpu_seconds(), b"", ""
    before_bytes = _reset_peak()
    try:
        document = parse_document(name, content, REQUEST)
        written = document.write([changed(segment) for segment in document.segments])
    except DocumentError as error:
        problem = str(error)
    return _cpu_seconds() - begun_seconds, _peak() - before_bytes, len(written), problem


def changed(segment: Segment) -> str:
    """Returns another text with the same tags."""
    return f"{segment.text} b"


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _reset_peak() -> int:
    """Resets the peak of the memory of this process to its present memory, and returns it."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak()


def _peak() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = (item for item in lines if item.startswith("VmHWM"))
    return int(line.split()[1]) << 10
