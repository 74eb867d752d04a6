"""Valid inputs of every interface that takes more than a text: the seeds that a fuzz damages."""

import io
import json
from collections.abc import Callable
from typing import Any

import docx
import pptx
from odf import opendocument, text

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
    "a.txt": b"- A dog.\n1. A cat.\n\n12:30\n",
    "a.md": b"# A dog\n\nA **dog** [runs](http://x.y) `git`.[^1]\n\n> quote\n\n"
    b"| a | b |\n|---|---|\n| x | y |\n\n[^1]: Note.\n",
    "a.html": b"<title>A dog</title><p>A <b>dog</b> runs. &amp; <code>git</code></p><img alt='A cat'>",
    "a.srt": b"1\n00:00:01,000 --> 00:00:02,000\n<i>A dog\nruns.</i>\n\n2\n00:00:03,000 --> 00:00:04,000\n- One.\n",
    "a.vtt": b"WEBVTT\n\nNOTE x\n\n00:01.000 --> 00:02.000 align:left\n<v Bob>A dog &amp; <i>runs</i>\n",
    "a.po": b'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n#, c-format\nmsgid "%d dog"\n'
    b'msgid_plural "%d dogs"\nmsgstr[0] ""\nmsgstr[1] ""\n',
    "a.json": b'{"a": "A dog {name}", "b": ["A <b>red</b> ball", "{n, plural, one {# dog} other {# dogs}}"]}',
    "a.arb": b'{"@@locale": "en", "a": "A dog runs.", "@a": {"description": "kept"}}',
    "a.yaml": b'# c\nen:\n  a: A dog # c\n  b: "A %{name}"\n  d: |\n    A dog\n    runs.\n'
    b"  f: &x [one two, 'it''s']\n  g: *x\n",
    "a.xlf": XLIFF.format("<segment><source>A <pc id='1'>dog</pc> runs.</source></segment>").encode(),
    "a.docx": _word,
    "a.pptx": _slides,
    "a.odt": _writer,
}
GLOSSARIES = {"tsv": "dog\tHund\ncat\tKatze\n", "csv": 'dog,Hund\n"a ""cat""",Katze\n', "tbx": TBX}
BODIES: dict[str, dict[str, object]] = {
    "/v1/translate": {
        "text": ["A {name} runs.", "<p>A <b>dog</b></p>"],
        "format": "html",
        "placeholders": ["all"],
        "terms": [{"source": "dog", "target": "Hund"}],
        "beam_size": 2,
        "alternatives": 2,
    },
    "/v1/score": {"text": ["A dog."], "target": ["Ein Hund."]},
    "/v1/detect": {"text": "A dog runs."},
    "/translate": {"q": ["A dog."], "source": "en", "target": "de", "format": "text", "alternatives": 1},
    "/v2/translate": {"text": ["A <x>dog</x> runs."], "target_lang": "DE", "tag_handling": "xml"},
    "/v2/models/multi30k-en-de/infer": {
        "inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["A dog."]}]
    },
}


def document(name: str) -> bytes:
    content = DOCUMENTS[name]
    return content if isinstance(content, bytes) else content()


def body(path: str) -> bytes:
    return json.dumps(BODIES[path]).encode()
