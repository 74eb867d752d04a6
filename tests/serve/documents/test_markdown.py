"""Markdown: what stays although CommonMark reads it as text."""

import pytest

from dragoman.serve.documents.document import DocumentRequest, Segment
from dragoman.serve.documents.formats import parse_document


def translate(text: str, *ignore_tags: str) -> tuple[list[str], str]:
    """Returns the texts of a document, and the document with the plain ones in capitals."""
    document = parse_document("a.md", text.encode(), DocumentRequest("en", "de", ignore_tags=ignore_tags))
    texts = [segment.text for segment in document.segments]
    assert document.write(texts) == text.encode()
    return texts, document.write([_upper(segment) for segment in document.segments]).decode()


def _upper(segment: Segment) -> str:
    return segment.text.upper() if segment.format == "text" else segment.text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("[^1]: The note.\n[^b]: note\n\n    More.\n", "[^1]: THE NOTE.\n[^b]: NOTE\n\n    MORE.\n"),
        ("- [^1]: The note\n  goes on.\n", "- [^1]: THE NOTE GOES ON.\n"),
        ("Term\n: definition\n~ other\n", "TERM\n: DEFINITION\n~ OTHER\n"),
        ("Term\n\n:   One.\n\n    Two.\n", "TERM\n\n:   ONE.\n\n    TWO.\n"),
        ("One: two\nthree\n", "ONE: TWO THREE\n"),
        ("*[HTML]: A language\n*[CSS]: Other\n", "*[HTML]: A LANGUAGE\n*[CSS]: OTHER\n"),
        (
            '!!! note "A title"\n    One.\n\n    - Two\n\nThree\n',
            '!!! note "A TITLE"\n    ONE.\n\n    - TWO\n\nTHREE\n',
        ),
        ("??? note\n    !!! tip\n        One.\n", "??? note\n    !!! tip\n        ONE.\n"),
        ('=== "Tab"\n\n    One.\n', '=== "TAB"\n\n    ONE.\n'),
    ],
)
def test_marks_of_notes_and_definitions_stay(text: str, written: str) -> None:
    assert translate(text)[1] == written


@pytest.mark.parametrize(
    "text",
    [
        *("$$E = mc^2$$\n", "$$\nab\n- cd\n= ef\n$$ (1)\n", "\\[\nab\n\\]\n"),
        *("\\begin{align}\nab &= cd\n\\end{align}\n", ":::\n", "[TOC]\n", "{: .wide }\n", "{% include abc %}\n"),
        "> [!NOTE]\n",
    ],
)
def test_formulas_and_lines_of_markup_have_no_text(text: str) -> None:
    assert translate(text)[0] == []
    assert translate(f"Before\n{text}\nAfter\n")[0] == ["Before", "After"]


@pytest.mark.parametrize(
    ("text", "segment"),
    [
        ("A $x$ of $O(n \\log n)$.", 'A <k id="1">x</k> of <k id="3">O(n \\log n)</k>.'),
        *((text, text) for text in ("It is $5 and $10, or $5-$10.", "Set $HOME and $PATH.")),
        ("See $$a$$ now.", 'See <k id="1">a</k> now.'),
        ("$$ is money.\n\nAnd $$ too.", "$$ is money."),
        ("See https://a.b/c_d_e.", 'See <k id="1">https://a.b/c_d_e</k>.'),
        ("Press <kbd>Ctrl</kbd> now.", 'Press <k id="1">Ctrl</k> now.'),
        ("A <i translate=no>b &amp; c</i> d.", 'A <k id="1">b &amp; c</k> d.'),
        ("A <kbd>b c.", 'A <x id="1"/>b c.'),
        ("A <em>b</em> c.", 'A <g id="1">b</g> c.'),
        ("# A dog {#dog}", "A dog"),
        ("A \\(x = y\\) and \\(z\\).", 'A <k id="1">x = y</k> and <k id="3">z</k>.'),
        ("A \\[text\\] \\(in b\\).", "A [text] (in b)."),
        ("\\[ a^2 \\] is b.", '<k id="0">a^2</k> is b.'),
        ("See https://a.b/c_(d), e.", 'See <k id="1">https://a.b/c_(d)</k>, e.'),
        ("(See https://a.b/c.)", '(See <k id="1">https://a.b/c</k>.)'),
        ("Or www.a.b/c.", 'Or <k id="1">www.a.b/c</k>.'),
        ("Well :smile: at 12:30:45.", 'Well <x id="1"/> at 12:30:45.'),
        ("A^[The *note*.] b.", 'A<g id="1">The <g id="3">note</g>.</g> b.'),
        ("A [[page]] and [[page|text]].", 'A <k id="1">page</k> and <g id="3">text</g>.'),
    ],
)
def test_formulas_and_code_are_kept_text(text: str, segment: str) -> None:
    assert translate(text)[0][0] == segment


def test_elements_of_the_request_are_kept_text() -> None:
    texts, _ = translate("A <b>bold</b> *move*.\n\n<p>A <B>bold</B> move</p>\n", "b")
    assert texts == ['A <k id="1">bold</k> <g id="3">move</g>.', 'A <k id="1">bold</k> move']


@pytest.mark.parametrize("start", [": a", "~ a", "::: a", "$$a$$", "!!! a"])
def test_a_translation_begins_no_block(start: str) -> None:
    written = parse_document("a.md", b"Text\n", DocumentRequest()).write([start])
    assert parse_document("a.md", written, DocumentRequest()).segments == [Segment(start)]
