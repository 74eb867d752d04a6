"""Names what a file is that is no ZIP package although its name claims it."""

from collections.abc import Iterator

_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENTRY_BYTES = 128
_LENGTH_AT = 64
ENCRYPTED = "the document is encrypted with a password: save it without the password"
# Streams of compound files by their names, and what has them.
_STREAMS = {
    "EncryptedPackage": ENCRYPTED,
    "WordDocument": "an old Word document (.doc): save it as .docx",
    "PowerPoint Document": "an old PowerPoint presentation (.ppt): save it as .pptx",
    "Workbook": "an old Excel workbook (.xls), expected a text or a presentation",
    "Book": "an old Excel workbook (.xls), expected a text or a presentation",
}
_BEGINNINGS = {
    b"{\\rtf": "a file in Rich Text Format (.rtf): save it as .docx",
    b"%PDF-": "a PDF file, expected a text or a presentation",
}


def describe_foreign(content: bytes) -> str | None:
    """Returns what a file is and how it can be translated; None: it is unknown."""
    if not content.startswith(_COMPOUND):
        return next((problem for start, problem in _BEGINNINGS.items() if content.startswith(start)), None)
    problems = (problem for name, problem in _STREAMS.items() if any(_entries(content, name)))
    return next(problems, "an old file of Microsoft Office: save it as .docx or .pptx")


def _entries(content: bytes, name: str) -> Iterator[int]:
    """Yields the offsets of the directory entries of a name in a compound file."""
    wanted = f"{name}\0".encode("utf-16-le")
    offset = content.find(wanted)
    while offset >= 0:
        length = content[offset + _LENGTH_AT : offset + _LENGTH_AT + 2]
        if offset % _ENTRY_BYTES == 0 and int.from_bytes(length, "little") == len(wanted):
            yield offset
        offset = content.find(wanted, offset + 1)
