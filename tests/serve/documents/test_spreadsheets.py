"""Spreadsheets of two writers, opened again by openpyxl."""

from collections.abc import Callable
from io import BytesIO
from zipfile import ZipFile

import openpyxl
import pytest
import xlsxwriter
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.worksheet.table import Table

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from tests.serve.documents.test_packed_formats import capitals, save
from tests.support.packages import zip_of

ROWS: list[list[str | int]] = [["Name", "Color"], ["Apple pie", "Red"], ["Red", 7], ["Apple pie", "=A2&B2"]]


def write_with_openpyxl(*, table: bool = False) -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Prices"
    for row in ROWS:
        sheet.append(row)
    if table:
        sheet.add_table(Table(displayName="T", ref="A1:B4"))
    book.create_sheet("Notes")["A1"] = "A note & more"
    return save(book)


def write_with_xlsxwriter(*, table: bool = False) -> bytes:
    stream = BytesIO()
    book = xlsxwriter.Workbook(stream)
    sheet, notes = book.add_worksheet("Prices"), book.add_worksheet("Notes")
    for number, row in enumerate(ROWS):
        sheet.write_row(number, 0, row)
    if table:
        sheet.add_table("A1:B4", {"columns": [{"header": name} for name in ("Name", "Color")]})
    notes.write(0, 0, "A note & more")
    chart = book.add_chart({"type": "column"})
    chart.add_series({"name": "The series", "values": "=Prices!$B$2:$B$3"})
    notes.insert_chart("B2", chart)
    notes.insert_textbox("B9", "In a box")
    book.close()
    return stream.getvalue()


def write_inline(**_: object) -> bytes:
    """Writes texts into cells, as writers do that read their rows once."""
    stream = BytesIO()
    book = xlsxwriter.Workbook(stream, {"constant_memory": True})
    for title, rows in (("Prices", ROWS), ("Notes", [["A note & more"]])):
        sheet = book.add_worksheet(title)
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
    book.close()
    return stream.getvalue()


Write = Callable[..., bytes]
WRITERS = pytest.mark.parametrize("write", [write_with_openpyxl, write_with_xlsxwriter, write_inline])


def parse(content: bytes, *columns: str) -> Document:
    return parse_document("a.xlsx", content, DocumentRequest("en", "de", columns=columns))


def translate(content: bytes, *columns: str) -> dict[str, list[list[object]]]:
    document = parse(content, *columns)
    book = openpyxl.load_workbook(BytesIO(document.write(capitals(document))))
    return {sheet.title: [[cell.value for cell in row] for row in sheet.iter_rows()] for sheet in book.worksheets}


@WRITERS
def test_texts_are_translated_and_numbers_formulas_and_names_stay(write: Write) -> None:
    assert translate(write()) == {
        "Prices": [["NAME", "COLOR"], ["APPLE PIE", "RED"], ["RED", 7], ["APPLE PIE", "=A2&B2"]],
        "Notes": [["A NOTE & MORE"]],
    }


@WRITERS
def test_an_unchanged_spreadsheet_keeps_every_byte(write: Write) -> None:
    content = write()
    for columns in ((), ("A",)):
        document = parse(content, *columns)
        assert document.write([segment.text for segment in document.segments]) == content


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (("B",), [["Name", "COLOR"], ["Apple pie", "RED"], ["Red", 7]]),
        (("2",), [["Name", "COLOR"], ["Apple pie", "RED"], ["Red", 7]]),
        (("Name",), [["Name", "Color"], ["APPLE PIE", "Red"], ["RED", 7]]),
        (("Prices!A",), [["NAME", "Color"], ["APPLE PIE", "Red"], ["RED", 7]]),
        (("Notes!*",), ROWS[:3]),
    ],
)
@WRITERS
def test_only_cells_of_chosen_columns_change_though_cells_share_texts(
    write: Write, columns: tuple[str, ...], expected: list[list[object]]
) -> None:
    found = translate(write(), *columns)
    assert found["Prices"][:3] == expected
    assert found["Notes"][0][0] == ("A NOTE & MORE" if columns == ("Notes!*",) else "A note & more")


def test_a_sheet_without_texts_of_its_own_may_be_larger_than_a_part_with_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = BytesIO()
    with xlsxwriter.Workbook(stream) as book:
        book.add_worksheet().write_column("A1", ["A text", *range(1000)])
    monkeypatch.setattr("dragoman.serve.documents.office.MAX_MEMBER_BYTES", 5000)
    assert len(parse(stream.getvalue()).segments) == 1
    with pytest.raises(DocumentError, match="of a part with text"):
        parse(stream.getvalue(), "A")


@WRITERS
def test_a_missing_column_is_named(write: Write) -> None:
    with pytest.raises(DocumentError, match="columns: 'Size', expected a letter or number"):
        parse(write(), "B", "Size")


@pytest.mark.parametrize("write", [write_with_openpyxl, write_with_xlsxwriter])
def test_headers_of_tables_stay_because_formulas_name_them(write: Write) -> None:
    assert translate(write(table=True))["Prices"][:2] == [["Name", "Color"], ["APPLE PIE", "RED"]]


def with_shared(text: str, cells: str = '<c t="s"><v>0</v></c>', column: str = "") -> bytes:
    """Returns a spreadsheet of one shared text, or what stands in its place, and of a table with a column."""
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    parts = {"s.xml": "sharedStrings", "a.xml": "worksheet", "b.xml": "sheet.main", "t.xml": "table"}
    types = "".join(f'<Override PartName="/{name}" ContentType="{kind}.{part}+xml"/>' for name, part in parts.items())
    return zip_of(
        {
            "[Content_Types].xml": f"<Types>{types}</Types>",
            "s.xml": f"<sst><si>{text}</si></sst>",
            "a.xml": f"<worksheet><sheetData><row>{cells}</row></sheetData></worksheet>",
            "b.xml": "<workbook/>",
            "_rels/b.xml.rels": "<Relationships/>",
            "t.xml": f'<table><tableColumn name="{column}"/></table>',
        }
    )


@pytest.mark.parametrize(("name", "text"), [("Net_x000a_price", "Net\nprice"), ("A_x000D__x000A_b", "A_x000D_\nb")])
def test_a_header_of_several_lines_stays(name: str, text: str) -> None:
    content = with_shared(f"<t>{text}</t>", column=name)
    assert parse(content).segments == parse(content, "A").segments == []


@pytest.mark.parametrize("columns", [(), ("A",)])
def test_the_pronunciation_of_a_text_goes_when_it_changes(columns: tuple[str, ...]) -> None:
    content = with_shared('<t>tokyo</t><rPh sb="0" eb="5"><t>to</t></rPh><phoneticPr fontId="1"/>')
    document = parse(content, *columns)
    assert document.write(["tokyo"]) == content
    written = ZipFile(BytesIO(document.write(["x"]))).read("s.xml").decode()
    assert written == '<sst><si><t>x</t><phoneticPr fontId="1"/></si></sst>'


def test_a_cell_of_a_shared_text_may_be_empty() -> None:
    assert len(parse(with_shared("<t>one</t>", '<c t="s"/><c t="s"><v>0</v></c>'), "B").segments) == 1


def test_charts_and_text_boxes_are_translated() -> None:
    texts = [segment.text for segment in parse(write_with_xlsxwriter()).segments]
    assert {"The series", "In a box"} <= set(texts)


def test_runs_of_a_cell_are_one_text_with_tags() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet["A1"] = CellRichText("Some ", TextBlock(InlineFont(b=True), "bold"), " text")
    document = parse(save(book))
    (segment,) = document.segments
    assert (segment.format, segment.visible) == ("xml", "Some bold text")
    after = openpyxl.load_workbook(BytesIO(document.write(capitals(document))), rich_text=True)
    text = after.worksheets[0]["A1"].value
    assert isinstance(text, CellRichText)
    assert str(text) == "SOME BOLD TEXT"
    (block,) = (part for part in text if isinstance(part, TextBlock))
    assert (block.text, block.font.b) == ("BOLD", True)


def test_a_translation_that_begins_as_a_formula_stays_a_text() -> None:
    document = parse(write_with_openpyxl())
    book = openpyxl.load_workbook(BytesIO(document.write(["=1+1"] * len(document.segments))))
    cell = book.worksheets[0]["A1"]
    assert (cell.value, cell.data_type) == ("=1+1", "s")


@pytest.mark.parametrize("number", ["9", "-1", "x", "", "1" * 5000])
def test_a_cell_without_its_shared_text_is_refused(number: str) -> None:
    content = with_shared("<t>a</t>", f'<c t="s"><v>{number}</v></c>')
    with pytest.raises(DocumentError, match="expected the number of a text"):
        parse(content, "A")
