"""PDF files: what their Markdown has, and which files are refused."""

from collections.abc import Callable
from typing import Any

import pytest

from dragoman.serve.documents.document import DocumentError, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from dragoman.serve.documents.job import JobLimits
from dragoman.serve.documents.reader import DocumentReader
from dragoman.serve.errors import RequestTooLargeError
from tests.support.cases import cases
from tests.support.pdf_files import Text, form_of, page_of, pages_of, pdf_of
from tests.support.sandboxes import open_sandbox

pytest.importorskip("pypdfium2_raw", reason="needs the extra `pdf`")
CASES = cases(__file__)
LIMITS = JobLimits(document_bytes=10 << 20, unpacked_bytes=1 << 20, jobs=1, store_bytes=1, keep_seconds=60.0)
HELLO = page_of([(50, 400, 10, "Hello world.")])
LINES = [(50.0, 700.0 - 12 * number, 10.0, "The lines of a paragraph go on and on") for number in range(20)]


def markdown(content: bytes) -> str:
    document = parse_document("a.pdf", content, DocumentRequest())
    return document.write([segment.text for segment in document.segments]).decode()


def refused(content: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        parse_document("a.pdf", content, DocumentRequest())


@pytest.mark.parametrize("case", CASES["blocks"], ids=[case["title"] for case in CASES["blocks"]])
def test_lines_become_blocks(case: dict[str, Any]) -> None:
    assert markdown(pages_of([page_of(case.get("texts", ())) + page_of(case.get("code", ()), "C")])) == case["markdown"]


def test_texts_are_translated_and_code_stays() -> None:
    content = pages_of([page_of([(50, 700, 10, "Call it:")]) + page_of([(50, 660, 10, "run()")], "C")])
    document = parse_document("a.pdf", content, DocumentRequest())
    assert [segment.text for segment in document.segments] == ["Call it:"]
    assert document.write(["Ruf *es*:"]) == b"Ruf \\*es\\*:\n\n```\nrun()\n```\n"


def test_words_are_in_the_order_of_the_page() -> None:
    texts: list[Text] = [(80, 688, 10, "four."), (50, 688, 10, "Three"), (72, 700, 10, "two"), (50, 700, 10, "One")]
    assert markdown(pages_of([page_of(texts)])) == "One two Three four.\n"


def test_ligatures_become_letters_and_other_characters_stay() -> None:
    names = "<</Type/Encoding/Differences[65/fi/onesuperior/ffl]>>"
    fonts = f"/Font<</L<</Type/Font/Subtype/Type1/BaseFont/Times-Roman/Encoding{names}>>>>"
    page = page_of([(50, 700, 10, "AB C")]).replace(b"/F ", b"/L ")
    assert markdown(pages_of([page], resources=fonts)) == "fi\u00b9 ffl\n"


def test_characters_beyond_the_basic_plane_are_whole() -> None:
    codes = b"1 begincodespacerange <00> <ff> endcodespacerange 2 beginbfchar <41> <d83dde00> <42> <d83d> endbfchar"
    fonts = "/Font<</U<</Type/Font/Subtype/Type1/BaseFont/Times-Roman/ToUnicode 6 0 R>>>>"
    page = page_of([(50, 700, 10, "A b BA")]).replace(b"/F ", b"/U ")
    assert markdown(pages_of([page], [form_of(codes)], resources=fonts)).startswith("\U0001f600 b ")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("FED CBA", "\u05d0\u05d1\u05d2 \u05d3\u05d4\u05d5"),
        ("new york A FED 12 CBA", "\u05d0\u05d1\u05d2 12 \u05d3\u05d4\u05d5 \u05d0 new york"),
        ("FED CBA is how it goes", "\u05d0\u05d1\u05d2 \u05d3\u05d4\u05d5 is how it goes"),
    ],
)
def test_words_from_right_to_left_are_in_their_order(shown: str, expected: str) -> None:
    codes = b"1 begincodespacerange <00> <ff> endcodespacerange 1 beginbfrange <41> <46> <05d0> endbfrange"
    fonts = "/Font<</F<</Type/Font/Subtype/Type1/BaseFont/Times-Roman/ToUnicode 6 0 R>>>>"
    assert markdown(pages_of([page_of([(50, 700, 10, shown)])], [form_of(codes)], resources=fonts)) == f"{expected}\n"


def test_a_paragraph_goes_on_at_the_next_page_and_running_heads_go() -> None:
    pages = []
    for number in range(1, 5):
        lines = [
            f"{word} {number} of a sentence that goes on at the next page" for word in ("Two", "and one", "and half")
        ]
        heads: list[Text] = [(50, 780, 10, f"Chapter {number}"), (50, 768, 10, "A book"), (300, 20, 8, str(number))]
        pages.append(page_of([*heads, *((50, 700 - 12 * place, 10, line) for place, line in enumerate(lines))]))
    written = markdown(pages_of(pages))
    assert "Chapter" not in written
    assert "A book" not in written
    assert written.startswith("Two 1 of a sentence that goes on at the next page and one 1")
    assert written.count("\n") == 1


def test_rotated_text_is_left_out() -> None:
    rotated = HELLO.replace(b"1 0 0 1", b"0 1 -1 0").replace(b"world", b"there")
    assert markdown(pages_of([HELLO + rotated])) == "Hello world.\n"


@pytest.mark.parametrize("matrix", ["0 1 -1 0 600 0", "-1 0 0 -1 600 800", "0 -1 1 0 0 800"])
def test_the_text_of_a_page_is_read_as_the_page_is_turned(matrix: str) -> None:
    turned = pages_of([f"{matrix} cm ".encode() + page_of([(50, 400, 10, "One two"), (50, 388, 10, "three.")])])
    angle = {"0 1": 90, "-1 ": 180, "0 -": 270}[matrix[:3]]
    assert markdown(turned.replace(b"/Type/Page/", b"/Rotate %d/Type/Page/" % angle)) == "One two three.\n"
    refused(turned, "0 of 1 pages have text")


def test_scans_are_refused() -> None:
    assert markdown(pages_of([HELLO, HELLO, b""])) == "Hello world.\n\nHello world.\n"
    refused(pages_of([HELLO, b""]), "1 of 2 pages have text: add that of scanned pages with `ocrmypdf`")


def test_columns_on_most_pages_are_refused_and_those_of_others_are_read_one_by_one() -> None:
    short = [(left, baseline, size, f"{'Left' if left < 100 else 'Right'} side") for left, baseline, size, _ in LINES]
    both = page_of(short) + page_of([(300, baseline - 5, size, "Right side") for _, baseline, size, _ in short])
    refused(pages_of([both, both, page_of(LINES)]), "2 of 3 pages have columns: translate what `pdftotext -layout`")
    written = markdown(pages_of([page_of(LINES), page_of(LINES), both]))
    assert written.rindex("Left") < written.index("Right")


@pytest.mark.parametrize("needed", [True, False])
def test_encrypted_files_are_refused(needed: bool) -> None:
    """A file may be encrypted so that it can be read without a password."""
    key = "00" * 32 if needed else CASES["key without a password"]
    entries = f"/Encrypt<</Filter/Standard/V 1/R 2/P -4/O<{'00' * 32}>/U<{key}>>>/ID[<00><00>]"
    refused(pages_of([HELLO], trailer=entries), "encrypted: decrypt it with `qpdf --decrypt`")


@pytest.mark.parametrize("content", [b"", b"%PDF-1.7", b"text", pages_of([HELLO])[:60]])
def test_what_is_no_pdf_file_is_refused(content: bytes) -> None:
    refused(content, "not a PDF file, or a damaged one")


FORMS = [form_of(f"/X{number + 1} Do " * 10 if number < 8 else HELLO) for number in range(9)]
# Small files that unpack to much, draw much or never end, which are made slowly, with what their errors name.
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "blanks": (lambda: pages_of([HELLO + b" " * (300 << 20)]), "MiB of memory"),
    "texts": (lambda: pages_of([HELLO * 2_000_000]), "MiB of memory|CPU time"),
    "forms": (lambda: pages_of([b"/X0 Do"], FORMS), "MiB of memory|CPU time"),
    "pages": (lambda: pages_of([HELLO * 2_000], count=20_000), "MiB of memory|CPU time"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_small_file_with_much_text_stays_within_the_limits(name: str) -> None:
    make, message = HOSTILE[name]
    content = make()
    assert len(content) < 1 << 20
    async with open_sandbox() as sandbox:
        with pytest.raises(RequestTooLargeError, match=message):
            await DocumentReader(sandbox, LIMITS).parse("a.pdf", content, DocumentRequest())


@pytest.mark.parametrize(("kids", "count"), [("2 0 R", 10), ("2 0 R 2 0 R", 1_000), ("3 0 R", 100_000)])
def test_page_trees_that_lie_or_never_end_have_no_pages(kids: str, count: int) -> None:
    tree = f"<</Type/Pages/Count {count}/Kids[{kids}]>>"
    refused(pdf_of(["<</Type/Catalog/Pages 2 0 R>>", tree, tree]), "0 of .* pages have text")


def test_a_form_that_draws_itself_ends() -> None:
    assert "Hello" in markdown(pages_of([b"/X0 Do"], [form_of(HELLO + b"/X0 Do")]))
