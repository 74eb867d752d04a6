"""Documents: a reader refuses bytes with its own error, and what it writes can be read again."""

from io import BytesIO
from zipfile import ZipFile

from dragoman.serve.documents.document import DocumentError, DocumentRequest, translated_suffix
from dragoman.serve.documents.formats import parse_document

_OFFICE = "application/vnd.openxmlformats-officedocument"
_TYPES = '<Types><Override PartName="/part.xml" ContentType="{}.{}+xml"/>{}</Types>'
_SHEET = "spreadsheetml.worksheet"
# A sheet besides, whose cells name the shared texts.
_OTHER = f'<Override PartName="/sheet.xml" ContentType="{_OFFICE}.{_SHEET}+xml"/>'
_CELLS = '<worksheet><sheetData><row><c r="A1" t="s"><v>0</v></c></row></sheetData></worksheet>'
# The first byte of an input is the index of its kind: a file, or a part that a package has.
KINDS = (
    *("docx", "odt", "xlf"),
    ("docx", {"[Content_Types].xml": _TYPES.format(_OFFICE, "wordprocessingml.document.main", "")}, "part.xml"),
    ("pptx", {"[Content_Types].xml": _TYPES.format(_OFFICE, "presentationml.slide", "")}, "part.xml"),
    ("pptx", {"[Content_Types].xml": _TYPES.format(_OFFICE, "drawingml.chart", "")}, "part.xml"),
    ("docx", {"part.xml": "<a/>"}, "[Content_Types].xml"),
    ("odt", dict[str, str](), "content.xml"),
    *("properties", "strings", "xml", "resx", "ts", "tsv", "csv", "xlsx"),
    ("xlsx", {"[Content_Types].xml": _TYPES.format(_OFFICE, _SHEET, "")}, "part.xml"),
    (
        "xlsx",
        {"[Content_Types].xml": _TYPES.format(_OFFICE, "spreadsheetml.sharedStrings", _OTHER), "sheet.xml": _CELLS},
        "part.xml",
    ),
    "pdf",
)
REQUEST = DocumentRequest("en", "de", retranslate=True, unpacked_bytes=8 << 20)


def check(data: bytes) -> None:
    """Reads a document, writes it unchanged and with other texts, and reads both again."""
    kind = KINDS[data[0] % len(KINDS)] if data else KINDS[0]
    name, content = (kind, data[1:]) if isinstance(kind, str) else (kind[0], _pack(kind[1], kind[2], data[1:]))
    try:
        document = parse_document(f"a.{name}", content, REQUEST)
    except DocumentError:
        return
    texts = [segment.text for segment in document.segments]
    for translations in (texts, [f"{text} b" for text in texts]):
        written = document.write(translations)
        again = parse_document(f"a{translated_suffix(f'a.{name}')}", written, REQUEST)
        assert name == "pdf" or len(again.segments) == len(texts), written


def _pack(members: dict[str, str], name: str, content: bytes) -> bytes:
    stream = BytesIO()
    with ZipFile(stream, "w") as package:
        for other, text in members.items():
            package.writestr(other, text)
        package.writestr(name, content)
    return stream.getvalue()
