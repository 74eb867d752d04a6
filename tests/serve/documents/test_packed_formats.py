"""Packed documents, opened again by their own libraries: docx, pptx, odt, odp."""

import re
from collections.abc import Callable
from io import BytesIO
from typing import Any
from xml.etree import ElementTree as ET
from zipfile import ZipFile

import docx
import pptx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odf import opendocument, text
from odf.draw import Frame, Page, TextBox
from odf.style import MasterPage, PageLayout
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE

from dragoman.serve.documents.document import Document, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from dragoman.serve.protect.markup.xml import check_xml
from tests.support.cases import cases
from tests.support.packages import zip_of

CASES = cases(__file__)

WORD_NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def save(document: Any) -> bytes:
    stream = BytesIO()
    document.save(stream)
    return stream.getvalue()


def make_docx() -> bytes:
    document = docx.Document()
    document.add_heading("A title", 1)
    paragraph = document.add_paragraph("Some ")
    paragraph.add_run("bold").bold = True
    paragraph.add_run(" text and ")
    paragraph.add_run("more").italic = True
    paragraph.add_run(".")
    paragraph.add_run().add_break()
    paragraph.add_run("After a break\tand a tab")
    table = document.add_table(1, 2)
    table.cell(0, 0).text = "First cell"
    table.cell(0, 1).text = "1,234"
    document.sections[0].header.paragraphs[0].text = "The header"
    document.sections[0].footer.paragraphs[0].text = "The footer"
    return save(document)


def make_pptx() -> bytes:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "The title"
    frame = slide.placeholders[1].text_frame
    frame.text = "A point with "
    frame.paragraphs[0].add_run().text = "bold"
    frame.paragraphs[0].runs[1].font.bold = True
    slide.notes_slide.notes_text_frame.text = "Some notes"
    data: Any = CategoryChartData()  # type: ignore[no-untyped-call]
    data.categories = ["one", "two"]
    data.add_series("series", (1, 2))
    shape = slide.shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, 1_000_000, 1_000_000, data)
    shape.chart.has_title = True
    shape.chart.chart_title.text_frame.text = "The chart"
    return save(presentation)


def make_odt() -> bytes:
    document = opendocument.OpenDocumentText()
    document.text.addElement(text.H(outlinelevel=1, text="A title"))
    paragraph = text.P(text="Some ")
    paragraph.addElement(text.Span(text="bold"))
    paragraph.addText(" text")
    paragraph.addElement(text.LineBreak())
    paragraph.addText("and <more>")
    document.text.addElement(paragraph)
    return save(document)


def make_odp() -> bytes:
    document = opendocument.OpenDocumentPresentation()
    layout = PageLayout(name="layout")
    master = MasterPage(name="master", pagelayoutname=layout)
    document.automaticstyles.addElement(layout)
    document.masterstyles.addElement(master)
    page, frame, box = Page(masterpagename=master), Frame(width="9cm", height="9cm"), TextBox()
    box.addElement(text.P(text="On a slide"))
    frame.addElement(box)
    page.addElement(frame)
    document.presentation.addElement(page)
    return save(document)


MAKERS: dict[str, Callable[[], bytes]] = {"docx": make_docx, "pptx": make_pptx, "odt": make_odt, "odp": make_odp}


def parse(name: str, content: bytes) -> Document:
    return parse_document(f"a.{name}", content, DocumentRequest("en", "de"))


def capitals(document: Document) -> list[str]:
    """Returns the segments in capitals, with their tags as they are."""
    return [
        segment.text.upper()
        if segment.format == "text"
        else re.sub("(<[^>]*>)|[^<]+", lambda found: found[1] or found[0].upper(), segment.text)
        for segment in document.segments
    ]


def translate(name: str, content: bytes) -> bytes:
    document = parse(name, content)
    return document.write(capitals(document))


def members(content: bytes) -> dict[str, bytes]:
    with ZipFile(BytesIO(content)) as file:
        assert file.testzip() is None
        return {name: file.read(name) for name in file.namelist()}


@pytest.mark.parametrize("name", MAKERS)
def test_a_document_whose_texts_do_not_change_keeps_every_byte(name: str) -> None:
    content = MAKERS[name]()
    document = parse(name, content)
    assert document.write([segment.text for segment in document.segments]) == content


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("docx", {"word/document.xml", "word/header1.xml", "word/footer1.xml"}),
        ("pptx", {"ppt/slides/slide1.xml", "ppt/notesSlides/notesSlide1.xml", "ppt/charts/chart{}.xml"}),
        ("odt", {"content.xml"}),
        ("odp", {"content.xml"}),
    ],
)
def test_members_without_text_keep_their_bytes_and_their_order(name: str, changed: set[str]) -> None:
    content = MAKERS[name]()
    before, after = members(content), members(translate(name, content))
    assert list(before) == list(after)
    assert {re.sub(r"chart\d+", "chart{}", item) for item, data in before.items() if after[item] != data} == changed


def test_a_docx_has_its_formats_cells_and_headers() -> None:
    document = docx.Document(BytesIO(translate("docx", make_docx())))
    title, paragraph = document.paragraphs
    assert (title.text, title.style.name if title.style else "") == ("A TITLE", "Heading 1")
    assert [(run.text, run.bold, run.italic) for run in paragraph.runs if run.text] == [
        ("SOME ", None, None),
        ("BOLD", True, None),
        (" TEXT AND ", None, None),
        ("MORE", None, True),
        (".", None, None),
        ("\n", None, None),
        ("AFTER A BREAK\tAND A TAB", None, None),
    ]
    assert [cell.text for cell in document.tables[0].row_cells(0)] == ["FIRST CELL", "1,234"]
    section = document.sections[0]
    assert (section.header.paragraphs[0].text, section.footer.paragraphs[0].text) == ("THE HEADER", "THE FOOTER")


def test_a_pptx_has_its_formats_notes_and_charts() -> None:
    slide = pptx.Presentation(BytesIO(translate("pptx", make_pptx()))).slides[0]
    title, body, shape = slide.shapes
    assert shape.chart.chart_title.text_frame.text == "THE CHART"
    assert title.text_frame.text == "THE TITLE"
    runs = [(run.text, run.font.bold) for run in body.text_frame.paragraphs[0].runs]
    assert runs == [("A POINT WITH ", None), ("BOLD", True)]
    assert slide.notes_slide.notes_text_frame.text == "SOME NOTES"


def test_a_chart_has_its_categories_and_series_and_keeps_its_workbook() -> None:
    content = make_pptx()
    after = translate("pptx", content)
    (plot,) = pptx.Presentation(BytesIO(after)).slides[0].shapes[2].chart.plots
    assert list(plot.categories) == ["ONE", "TWO"]
    assert [(line.name, line.values) for line in plot.series] == [("SERIES", (1.0, 2.0))]
    (workbook,) = (name for name in members(content) if name.endswith(".xlsx"))
    assert members(content)[workbook] == members(after)[workbook]


@pytest.mark.parametrize(("markup", "written"), CASES["strings of charts"])
def test_strings_of_charts(markup: str, written: str | None) -> None:
    kind = "application/vnd.openxmlformats-officedocument.drawingml.chart+xml"
    types = f'<Types><Override PartName="/c.xml" ContentType="{kind}"/></Types>'
    chart = f'<c:chartSpace xmlns:c="c" xmlns:cx="cx">{markup}</c:chartSpace>'
    content = zip_of({"[Content_Types].xml": types, "c.xml": chart})
    after = members(translate("docx", content))["c.xml"].decode()
    assert re.findall("<[^>]*>([^<]*[A-Z][^<]*)</", after) == ([] if written is None else [written])


def test_a_chart_of_an_odt_is_translated() -> None:
    body = '<o xmlns:text="t" xmlns:office="o">{}<text:p>{}</text:p></o>'
    parts = {"": ("", "one"), "Object 1/": ("<office:chart/>", "two"), "Object 2/": ("", "three")}
    content = zip_of({f"{folder}content.xml": body.format(*texts) for folder, texts in parts.items()})
    after = members(translate("odt", content))
    assert [re.findall("[A-Z]+", data.decode()) for data in after.values()] == [["ONE"], ["TWO"], []]


def test_an_odt_has_its_spans_and_breaks() -> None:
    document = opendocument.load(BytesIO(translate("odt", make_odt())))
    (heading,), (paragraph,) = document.getElementsByType(text.H), document.getElementsByType(text.P)
    assert str(heading) == "A TITLE"
    elements = [node for node in paragraph.childNodes if node.nodeType == node.ELEMENT_NODE]
    assert [(node.tagName, str(node)) for node in elements] == [("text:span", "BOLD"), ("text:line-break", "")]
    assert str(paragraph) == "SOME BOLD TEXTAND <MORE>"


TEXT_BOX = "<draw:b><text:p>3 c</text:p></draw:b>"
ODT_PIECES = ("one", " ", "&amp;", "<text:s/>", "<text:tab/>", "<text:p>two</text:p>", TEXT_BOX)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(ODT_PIECES), max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_any_odt_whose_texts_do_not_change_keeps_every_byte(pieces: list[str], start: int, end: int) -> None:
    pieces = [*pieces[:start], "<text:span>", *pieces[start:end], "</text:span>", *pieces[max(start, end) :]]
    body = f'<o xmlns:text="t" xmlns:draw="d"><text:p>{"".join(pieces)}</text:p></o>'
    document = parse("odt", content := zip_of({"content.xml": body}))
    assert document.write([segment.text for segment in document.segments]) == content
    check_xml(members(document.write(capitals(document)))["content.xml"].decode())


def test_an_odp_has_its_text_boxes() -> None:
    document = opendocument.load(BytesIO(translate("odp", make_odp())))
    assert [str(item) for item in document.getElementsByType(text.P)] == ["ON A SLIDE"]


def docx_with(body: str) -> bytes:
    return docx_of(
        f'<w:document xmlns:w="{WORD_NAMESPACE}" xmlns:r="urn:r" xmlns:m="urn:m"><w:body>{body}</w:body></w:document>'
    )


def docx_of(content: str) -> bytes:
    types = (
        '<Types><Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.'
        'wordprocessingml.document.main+xml"/></Types>'
    )
    return zip_of({"[Content_Types].xml": types, "word/document.xml": content})


def run(content: str, properties: str = "") -> str:
    return f"<w:r>{f'<w:rPr>{properties}</w:rPr>' if properties else ''}{content}</w:r>"


def word(value: str, properties: str = "") -> str:
    return run(f'<w:t xml:space="preserve">{value}</w:t>', properties)


def field(kind: str) -> str:
    return run(f'<w:fldChar w:fldCharType="{kind}"/>')


LINK = field("begin") + run("<w:instrText> HYPERLINK x </w:instrText>") + field("separate")
GLOW = '<w:r xmlns:x="urn:x"><w:rPr><x:glow/></w:rPr>'
PAGE = field("begin") + run("<w:instrText> PAGE </w:instrText>") + field("separate") + word("7") + field("end")


@pytest.mark.parametrize(
    ("paragraph", "texts", "written"),
    [
        # Word divides text into runs at random: only formats matter.
        (
            word("Hel", '<w:lang w:val="en-US"/>') + '<w:proofErr w:type="spellStart"/>' + word("lo you"),
            ["Hello you"],
            word("HELLO YOU"),
        ),
        # Most characters are bold, so the others are tags.
        (
            word("a ") + word("bold text", "<w:b/>"),
            ['<g id="0">a </g>bold text'],
            word("A ") + word("BOLD TEXT", "<w:b/>"),
        ),
        (
            '<w:hyperlink r:id="x">' + word("a link") + "</w:hyperlink>" + word(" here"),
            ['<g id="0">a link</g> here'],
            '<w:hyperlink r:id="x">' + word("A LINK") + "</w:hyperlink>" + word(" HERE"),
        ),
        # A tab inside of a link divides: the link stays where it is.
        (
            word("see ") + "<w:hyperlink>" + word("one") + run("<w:tab/>") + word("two") + "</w:hyperlink>",
            ["see", "one", "two"],
            word("SEE ") + "<w:hyperlink>" + word("ONE") + run("<w:tab/>") + word("TWO") + "</w:hyperlink>",
        ),
        (
            run("<w:t>one</w:t><w:tab/><w:t>two</w:t>", "<w:i/>"),
            ["one", "two"],
            run('<w:t xml:space="preserve">ONE</w:t><w:tab/><w:t xml:space="preserve">TWO</w:t>', "<w:i/>"),
        ),
        (word("see ") + LINK + word("here") + field("end"), ['see <g id="1">here</g>'], None),
        (word("page ") + PAGE + word(" of it"), ['page <x id="1"/> of it'], None),
        (word("old") + "<w:del>" + run("<w:delText>gone</w:delText>") + "</w:del>" + word(" new"), None, None),
        (word("a ") + "<m:oMath><m:r><m:t>x</m:t></m:r></m:oMath>" + word(" b"), ['a <x id="1"/> b'], None),
        (word("a note") + run('<w:footnoteReference w:id="2"/>'), ["a note"], None),
        # Properties may need a namespace that their run declares, and so may what follows a tab.
        (
            GLOW + "<w:t>one</w:t><w:tab/><w:t>two</w:t><x:end/></w:r>",
            ["one", "two"],
            GLOW + '<w:t xml:space="preserve">ONE</w:t><w:tab/><w:t xml:space="preserve">TWO</w:t><x:end/></w:r>',
        ),
    ],
)  # fmt: skip
def test_runs_of_a_paragraph(paragraph: str, texts: list[str] | None, written: str | None) -> None:
    document = parse("docx", docx_with(f"<w:p><w:pPr/>{paragraph}</w:p>"))
    if texts is not None:
        assert [segment.text for segment in document.segments] == texts
    after = members(document.write(capitals(document)))["word/document.xml"].decode()
    if written is not None:
        assert after.partition("<w:pPr/>")[2].partition("</w:p>")[0] == written
    for kept in re.findall(r"<w:(?:fldChar|footnoteReference|delText|hyperlink)[^>]*>|<m:t>x", paragraph):
        assert after.count(kept) == paragraph.count(kept)


@pytest.mark.parametrize(
    ("paragraphs", "texts", "written"),
    [
        # A prefix is declared where it is used, and has another meaning later.
        (
            '<x:p xmlns:x="NS"><x:r><x:t>one</x:t></x:r></x:p><x:p xmlns:x="urn:x"><x:r><x:t>kept</x:t></x:r></x:p>',
            ["one"],
            "ONE",
        ),
        ('<p xmlns="NS"><r><rPr><lang/></rPr><t>one </t></r><r><t>two</t></r></p>', ["one two"], "ONE TWO"),
        # The attributes of a field have a prefix, its elements have none.
        (
            f'<p xmlns="NS">{(word("one ") + PAGE + word(" two")).replace("<w:", "<").replace("</w:", "</")}</p>',
            ['one <x id="1"/> two'],
            "ONE 7 TWO",
        ),
        # A text box divides its paragraph, also if it has another prefix.
        (
            f'<w:p>{word("one")}<w:r><w:pict><p xmlns="NS"><r><t>two</t></r></p></w:pict></w:r>{word("three")}</w:p>',
            ["one", "three", "two"],
            "ONETWOTHREE",
        ),
    ],
)
def test_the_namespace_counts_and_not_the_prefix(paragraphs: str, texts: list[str], written: str) -> None:
    content = f'<document xmlns:w="NS">{paragraphs}</document>'.replace("NS", WORD_NAMESPACE)
    document = parse("docx", docx_of(content))
    assert [segment.text for segment in document.segments] == texts
    after = members(document.write(capitals(document)))["word/document.xml"].decode()
    elements = ET.fromstring(after).iter(f"{{{WORD_NAMESPACE}}}t")  # noqa: S314 - a document of this test
    assert "".join(str(element.text) for element in elements) == written


def test_comments_and_deleted_text_of_an_odt_stay() -> None:
    body = (
        '<office:document-content xmlns:office="o" xmlns:text="t" xmlns:dc="d">'
        "<text:tracked-changes><text:p>gone</text:p></text:tracked-changes>"
        "<text:p>one<office:annotation><dc:creator>me</dc:creator><text:p>note</text:p>"
        "</office:annotation> two</text:p></office:document-content>"
    )
    assert [segment.text for segment in parse("odt", zip_of({"content.xml": body})).segments] == ["one", "two"]


PIECES = st.sampled_from(
    [
        *(word("one "), word("two ", "<w:b/>"), word("three", '<w:i/><w:lang w:val="en"/>'), word("4 ")),
        run("<w:t>five</w:t><w:tab/><w:t>six</w:t>", "<w:b/>"),
        *(run("<w:br/><w:t>seven</w:t>"), run("<w:t>eight</w:t><w:footnoteReference/>")),
        '<w:hyperlink r:id="a">' + word("nine") + "</w:hyperlink>",
        "<w:ins>" + word("ten", "<w:b/>") + run("<w:tab/>") + word("eleven") + "</w:ins>",
        "<w:sdt><w:sdtContent>" + word("twelve") + "</w:sdtContent></w:sdt>",
        f"<w:p>{word('thirteen')}</w:p>",
        LINK + word("fourteen", "<w:u/>") + field("end"),
        *('<w:bookmarkStart w:id="1"/>', PAGE, field("begin"), field("separate"), "\n "),
    ]
)


def formatted(text: str) -> list[tuple[str, frozenset[str]]]:
    """Returns each character with its properties."""
    names = {f"{{{WORD_NAMESPACE}}}{name}": name for name in ("r", "rPr", "t", "b", "i", "u")}
    characters = []
    for item in ET.fromstring(text).iter():  # noqa: S314 - a document of this test
        if names.get(item.tag) == "r":
            form = frozenset(names[child.tag] for part in item for child in part if child.tag in names)
            characters += [(char, form) for part in item if names.get(part.tag) == "t" for char in part.text or ""]
    return characters


@settings(max_examples=100, deadline=None)
@given(st.lists(PIECES, max_size=8))
def test_any_paragraph_keeps_its_text_and_its_markup(pieces: list[str]) -> None:
    content = docx_with(f"<w:p>{''.join(pieces)}</w:p>")
    document = parse("docx", content)
    assert document.write([segment.text for segment in document.segments]) == content
    before, after = (members(item)["word/document.xml"].decode() for item in (content, translate("docx", content)))
    check_xml(after)
    texts = [re.findall("<w:t(?: [^>]*)?>([^<]*)|<w:(?:tab|br)/>", item) for item in (before, after)]
    assert "".join(texts[1]) == "".join(texts[0]).upper()
    marks = [re.findall("<w:(?!t[ >]|r>|rPr|b/|i/|u/|lang)[^>]*>", item) for item in (before, after)]
    assert marks[0] == marks[1]
    assert [(item.upper(), form) for item, form in formatted(before)] == formatted(after)
    assert document.write([segment.text for segment in document.segments]) == content
