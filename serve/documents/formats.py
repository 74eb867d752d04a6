"""Which format a file has, by the end of its name."""

from pathlib import PurePath

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest, Parse
from dragoman.serve.documents.gettext import parse_po
from dragoman.serve.documents.html import parse_html
from dragoman.serve.documents.json import parse_arb, parse_json
from dragoman.serve.documents.markdown import parse_markdown
from dragoman.serve.documents.office import parse_office
from dragoman.serve.documents.opendocument import parse_opendocument
from dragoman.serve.documents.plain import parse_plain
from dragoman.serve.documents.subtitles import parse_srt, parse_vtt
from dragoman.serve.documents.xliff import parse_xliff
from dragoman.serve.documents.yaml import parse_yaml

FORMATS: dict[str, Parse] = {
    ".txt": parse_plain,
    ".md": parse_markdown,
    ".html": parse_html,
    ".htm": parse_html,
    ".srt": parse_srt,
    ".vtt": parse_vtt,
    ".po": parse_po,
    ".pot": parse_po,
    ".json": parse_json,
    ".arb": parse_arb,
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".xlf": parse_xliff,
    ".xliff": parse_xliff,
    ".docx": parse_office,
    ".pptx": parse_office,
    ".odt": parse_opendocument,
    ".odp": parse_opendocument,
}


def parse_document(name: str, content: bytes, request: DocumentRequest) -> Document:
    """Parses a file; raises DocumentError if the format is unknown or the file malformed."""
    parse = FORMATS.get(PurePath(name).suffix.lower())
    if parse is None:
        raise DocumentError(f"unknown format, expected a name that ends in one of {' '.join(FORMATS)}")
    return parse(content, request)
