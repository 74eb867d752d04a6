"""Valid inputs of every interface that takes more than a text: the seeds that a fuzz damages."""

import io
import json
from collections.abc import Callable
from typing import Any

import docx
import pptx
from odf import opendocument, text

from tests.support.cases import cases

CASES = cases(__file__)

XLIFF = "<xliff version='2.0' srcLang='en' trgLang='de'><file id='f'><unit id='u'>{}</unit></file></xliff>"
TBX = (
    "<tbx><text><body><termEntry><langSet xml:lang='en'><tig><term>dog</term></tig></langSet>"
    "<langSet xml:lang='de'><tig><term>Hund</term></tig></langSet></termEntry></body></text></tbx>"
)


def _saved(document: Any) -> bytes:
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def _word() -> bytes:
    document = docx.Document()
    document.add_heading("A dog", 1)
    document.add_paragraph("A dog ").add_run("runs").bold = True
    return _saved(document)


def _slides() -> bytes:
    presentation = pptx.Presentation()
    presentation.slides.add_slide(presentation.slide_layouts[1]).shapes.title.text = "A dog runs."
    return _saved(presentation)


def _writer() -> bytes:
    document = opendocument.OpenDocumentText()
    document.text.addElement(text.P(text="A dog runs."))
    return _saved(document)


DOCUMENTS: dict[str, bytes | Callable[[], bytes]] = {
    **{name: text.encode() for name, text in CASES["texts"].items()},
    "a.xlf": XLIFF.format("<segment><source>A <pc id='1'>dog</pc> runs.</source></segment>").encode(),
    "a.docx": _word,
    "a.pptx": _slides,
    "a.odt": _writer,
}
GLOSSARIES = {"tsv": "dog\tHund\ncat\tKatze\n", "csv": 'dog,Hund\n"a ""cat""",Katze\n', "tbx": TBX}
BODIES: dict[str, dict[str, object]] = CASES["bodies"]


def document(name: str) -> bytes:
    content = DOCUMENTS[name]
    return content if isinstance(content, bytes) else content()


def body(path: str) -> bytes:
    return json.dumps(BODIES[path]).encode()
