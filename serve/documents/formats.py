"""Which format a file has, by the end of its name."""

from functools import partial
from pathlib import PurePath

from dragoman.serve.documents.android import parse_android
from dragoman.serve.documents.apple_strings import parse_strings
from dragoman.serve.documents.csv import parse_csv
from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest, Parse
from dragoman.serve.documents.epub import parse_epub
from dragoman.serve.documents.gettext import parse_po
from dragoman.serve.documents.html import parse_html, parse_xhtml
from dragoman.serve.documents.json import parse_json
from dragoman.serve.documents.markdown import parse_markdown
from dragoman.serve.documents.notebook import parse_notebook
from dragoman.serve.documents.office import parse_office
from dragoman.serve.documents.opendocument import parse_opendocument
from dragoman.serve.documents.pdf import parse_pdf
from dragoman.serve.documents.plain import parse_plain
from dragoman.serve.documents.properties import parse_properties
from dragoman.serve.documents.qt import parse_qt
from dragoman.serve.documents.resx import parse_resx
from dragoman.serve.documents.spreadsheet import parse_spreadsheet
from dragoman.serve.documents.subtitles import parse_subtitles
from dragoman.serve.documents.xliff import parse_xliff
from dragoman.serve.documents.yaml import parse_yaml
from dragoman.serve.translation.markup import AUTO

FORMATS: dict[str, Parse] = {
    ".txt": parse_plain,
    **dict.fromkeys((".md", ".markdown"), parse_markdown),
    **dict.fromkeys((".html", ".htm"), parse_html),
    ".xhtml": parse_xhtml,
    ".srt": partial(parse_subtitles, vtt=False),
    ".vtt": partial(parse_subtitles, vtt=True),
    **dict.fromkeys((".po", ".pot"), parse_po),
    ".json": parse_json,
    ".arb": partial(parse_json, kept="@"),
    **dict.fromkeys((".yaml", ".yml"), parse_yaml),
    **dict.fromkeys((".xlf", ".xliff"), parse_xliff),
    ".properties": parse_properties,
    ".strings": parse_strings,
    ".xml": parse_android,
    ".resx": parse_resx,
    ".ts": parse_qt,
    ".csv": parse_csv,
    ".tsv": partial(parse_csv, delimiter="\t"),
    ".ipynb": parse_notebook,
    **dict.fromkeys((".docx", ".pptx"), parse_office),
    ".xlsx": parse_spreadsheet,
    **dict.fromkeys((".odt", ".odp"), parse_opendocument),
    ".epub": parse_epub,
    ".pdf": parse_pdf,
}


def parse_document(name: str, content: bytes, request: DocumentRequest) -> Document:
    """Parses a file; raises DocumentError if the format is unknown or the file malformed."""
    parse = FORMATS.get(PurePath(name).suffix.lower())
    if parse is None:
        raise DocumentError(f"unknown format, expected a name that ends in one of {' '.join(FORMATS)}")
    return parse(content, request)


# Their texts are messages of programs, which have placeholders.
_MESSAGES = {
    *(".po", ".pot", ".json", ".arb", ".yaml", ".yml", ".xlf", ".xliff"),
    *(".properties", ".strings", ".xml", ".resx", ".ts"),
}


def kept_placeholders(name: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the kinds of placeholders to keep in a file: those that the client names, or all in messages."""
    return kinds or ((AUTO,) if PurePath(name).suffix.lower() in _MESSAGES else ())
