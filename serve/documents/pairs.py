"""Pairs as files: TMX 1.4b, XLIFF, PO and TSV. Those of clients are read in the sandbox.

A file is read in parts of bounded size, so that one of any length takes little memory; PO is read as a whole.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

from dragoman.serve.documents.document import DocumentError
from dragoman.serve.documents.escapes import write_escapes
from dragoman.serve.documents.gettext import read_po_pairs
from dragoman.serve.host.files import FileError
from dragoman.serve.memory.entry import Entry, Pair
from dragoman.serve.memory.tmx import read_tmx, write_tmx
from dragoman.serve.memory.xliff import read_xliff, write_xliff
from dragoman.serve.sandbox.frames import Item
from dragoman.serve.sandbox.worker import Parser, Refusal

PairsFormat = Literal["tmx", "tsv", "po", "xliff"]
FORMATS: tuple[PairsFormat, ...] = get_args(PairsFormat)
MEDIA_TYPES: dict[PairsFormat, str] = {
    "tmx": "application/x-tmx+xml",
    "tsv": "text/tab-separated-values",
    "po": "text/x-gettext-translation",
    "xliff": "application/xliff+xml",
}
READ = "memory.read"
PART_BYTES = 1 << 16
MAX_LINE_BYTES = 100_000
MAX_PO_BYTES = 64 << 20
_PO_HEAD = 'msgid ""\nmsgstr ""\n"Language: {}\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
_SPACES = str.maketrans("\t\r\n", "   ")


class PairsError(Exception):
    """A file of pairs that cannot be read; the message is for the client."""


def read_pairs(parts: Iterable[bytes], pairs_format: PairsFormat, pair: Pair) -> Iterator[Entry]:
    """Yields the pairs of a file with both texts; raises PairsError if it is malformed or exceeds a limit.

    Args:
        parts: of the file: UTF-8, or XML in its own encoding.
    """
    if pairs_format in ("tmx", "xliff"):
        return (read_tmx if pairs_format == "tmx" else read_xliff)(parts, pair, PairsError)
    return _po(parts, pair) if pairs_format == "po" else _tsv(_lines(parts))


def write_pairs(entries: Iterable[Entry], pairs_format: PairsFormat, pair: Pair) -> Iterator[str]:
    """Yields the parts of a file of pairs, which `read_pairs` reads. TSV has spaces in place of tabs and line ends."""
    if pairs_format in ("tmx", "xliff"):
        return (write_tmx if pairs_format == "tmx" else write_xliff)(entries, pair)
    if pairs_format == "po":
        return chain([_PO_HEAD.format(pair.target_language)], map(_message, entries))
    return ("\t".join(text.translate(_SPACES) for text in entry if text) + "\n" for entry in entries)


def format_of(file: Path) -> PairsFormat:
    """Returns the format that the suffix of a file names; raises FileError if there is none."""
    suffix = {".xlf": ".xliff"}.get(file.suffix.lower(), file.suffix.lower())
    found = next((known for known in FORMATS if suffix == f".{known}"), None)
    if found is None:
        raise FileError(f"{file}: expected a name that ends in .{' or .'.join(FORMATS)}")
    return found


def _po(parts: Iterable[bytes], pair: Pair) -> Iterator[Entry]:
    content = bytearray()
    for part in parts:
        content += part
        if len(content) > MAX_PO_BYTES:
            raise PairsError(f"PO: expected at most {MAX_PO_BYTES} bytes")
    try:
        for texts in read_po_pairs(bytes(content), pair.target_language):
            if texts[0].strip() and texts[1].strip():
                yield Entry(*texts)
    except DocumentError as error:
        raise PairsError(str(error)) from error


def _message(entry: Entry) -> str:
    fields = {"msgctxt": entry.context, "msgid": entry.source, "msgstr": entry.target}
    return "\n" + "".join(f'{name} "{write_escapes(text, chr(34))}"\n' for name, text in fields.items() if text)


def _lines(parts: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    rest, number = b"", 0
    for part in chain(parts, [b"\n"]):
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            number += 1
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise PairsError(f"line {number}: not valid UTF-8 at byte {error.start}") from error
        if len(rest) > MAX_LINE_BYTES:
            raise PairsError(f"line {number + 1}: expected at most {MAX_LINE_BYTES} bytes")


def _tsv(lines: Iterator[tuple[int, str]]) -> Iterator[Entry]:
    for number, line in lines:
        source, separator, rest = line.partition("\t")
        if not separator and line.strip():
            raise PairsError(f"line {number}: expected a text, a tab and its translation")
        target, *more = rest.split("\t")
        if source.strip() and target.strip():
            yield Entry(source, target, *more[:1])


def _read(items: list[Item]) -> Iterator[Item]:
    """Yields source, target and context of each pair; refuses with the problem of a file."""
    pairs_format, source_language, target_language, data = items
    parts = (data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES))
    try:
        yield from read_pairs(parts, pairs_format, Pair(source_language, target_language))
    except PairsError as error:
        raise Refusal(str(error)) from error


PARSERS: dict[str, Parser] = {READ: _read}
