"""Documents become sentences: which tags end one, what is not translated, and what stays between sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.protect.markup.elements import MAX_LEVELS, MarkupFormat, MarkupOptions
from dragoman.serve.protect.markup.sentences import read_document
from dragoman.serve.protect.markup.tokens import MarkupError
from tests.support.markup import split, translate_markup

HTML = MarkupOptions("html")


def sentences(text: str, options: MarkupOptions = HTML) -> list[str]:
    return [sentence.text for sentence in read_document(text, options, split).sentences]


def options(markup_format: MarkupFormat, **tags: str) -> MarkupOptions:
    """Returns options from names of tags that blanks separate."""
    return MarkupOptions(markup_format, **{f"{name}_tags": frozenset(names.split()) for name, names in tags.items()})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>One <b>two</b>.</p><p>Three", ["One two.", "Three"]),
        ("<ul><li>One<li>Two <i>three</i></ul>", ["One", "Two three"]),
        ("One<br>two<hr/>three", ["One", "two", "three"]),
        ("One <my-tag>two</my-tag> three", ["One two three"]),
        ("<table><tr><td>One<td>Two</table>", ["One", "Two"]),
        ("<a href=x><h2>One</h2> two</a>", ["One", "two"]),
        ("<title>One &amp; <b></title><p>two", ["One & <b>", "two"]),
        ("  One\n  <b> two </b>\tthree \n", ["One two three"]),
        ("One.  Two.", ["One.", "Two."]),
        ("One&nbsp;two &#8364;", ["One\u00a0two €"]),
        ("One<img>two <img> three<wbr>four", ["One two threefour"]),
        ("<!doctype html><!-- a -->\n<p>One <!-- b -->two", ["One two"]),
        ("<select><option>One<option>Two</select><button>Three</button>four", ["One", "Two", "Three", "four"]),
        ("</p>One</p>two</b> three", ["One", "two three"]),
    ],
)
def test_block_tags_of_html_end_a_sentence_and_inline_ones_do_not(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<script>One</script><style>two</style>three", ["three"]),
        ("<pre>One\ntwo</pre>three<textarea>four</textarea>", ["three"]),
        ("<svg><text>One</text></svg> two <math><mi>x</mi></math> three", ["two three"]),
        ("<div translate=no>One <b>two</b></div>three", ["three"]),
        ("<div translate=no>One <p translate=yes>two</p> three</div>", ["two"]),
        ("One <span class=notranslate>two</span> three", ["One two three"]),
        ("One <span translate=no>two. Three</span> four", ["One four"]),
        ("<p><span translate=no>One</span></p>", []),
        ("One. <b translate=no>Two.</b> Three.", ["One.", "Three."]),
        *((nothing, []) for nothing in ("<noscript><p>One</p></noscript>", "<img alt='One'>", " &nbsp; &#8203;", "")),
    ],
)
def test_what_is_not_translated_is_left_out_or_kept_in_its_sentence_as_a_whole(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    ("tag", "ends"),
    [("p", True), ("div", True), ("ul", True), ("b", False), ("img", False), ("br", False), ("button", False)],
)
def test_a_block_ends_an_open_paragraph_unless_it_may_stand_inside_of_one(tag: str, ends: bool) -> None:
    """What ends the paragraph also ends its `translate=no`."""
    assert sentences(f"<p translate=no>One <{tag}>two") == (["two"] if ends else [])


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_sentence_may_begin_at_any_character(cut: int) -> None:
    plain = "ab cd ef"
    document = read_document(f"<p>{plain}</p>", HTML, lambda _: [[(0, cut), (cut, len(plain))]])
    assert [sentence.source for sentence in document.sentences] == [plain[:cut], plain[cut:]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One <g>two</g> three.", ["One two three."]),
        ("<a>One</a><b>Two</b>", ["One", "Two"]),
        ("<a>One <b><c>two</c></b></a> <d>Three</d>", ["One two", "Three"]),
        ("<a><b>One</b>\n<b>Two <br/> three</b></a>", ["One", "Two three"]),
        ("<a>One <b/>two<?c d?> three</a>", ["One two three"]),
        ("<a>One <![CDATA[two]]> three</a>", ["One three"]),
        ("<a translate='no'>One</a><b>Two</b>", ["Two"]),
        ("<P>One</P>two", ["Onetwo"]),
        ("<!DOCTYPE a SYSTEM 'b'><a>caf&eacute; &product; is</a>", ["café is"]),
    ],
)
def test_an_element_of_xml_ends_a_sentence_unless_text_stands_next_to_it(text: str, expected: list[str]) -> None:
    """An element inside of text is part of the sentence with all elements inside of it."""
    assert sentences(text, MarkupOptions("xml")) == expected


@pytest.mark.parametrize(
    ("text", "chosen", "expected"),
    [
        ("One <b>two</b> three", options("html", splitting="b"), ["One", "two", "three"]),
        ("One<br>two <p>three", options("html", non_splitting="br p"), ["Onetwo three"]),
        ("One <code>two</code> three <kbd>four</kbd>", options("html", ignore="code"), ["One two three four"]),
        ("<p>One</p><aside>Two <b>three</b></aside>", options("html", ignore="aside"), ["One"]),
        ("<a>One <b>two</b></a>", options("xml", splitting="b"), ["One", "two"]),
        ("<a>One</a><b>two</b>", options("xml", non_splitting="a b"), ["Onetwo"]),
        ("One <x>two</x>", options("xml", ignore="x"), ["One two"]),
        ("One <X>two</X>. <x>Three</x>", options("xml", ignore="x"), ["One two."]),
    ],
)
def test_clients_choose_what_splits_and_what_is_ignored(text: str, chosen: MarkupOptions, expected: list[str]) -> None:
    assert sentences(text, chosen) == expected


@pytest.mark.parametrize(
    "text",
    [
        "<p class=x >One <B>two</b >.</P\n>\n<!-- <p> --><ul><li>Three<li>Four</ul>",
        "<b>One <i>two</b> three</i> four",
        "<i><b>One. Two <u>three.</u></b> Four</i> five.",
        "<b>One. <img src='a'>Two</b> three.",
        "a<b>One.</b> <b>Two",
        "<svg><a>One</a></svg>two <script>if (a < b) {}</script> three <a name=x></a>four",
        "One <span translate=no>two</span> three <code>four</code>",
        "<table><tr><td>One</table></div></i>two<p>three</p></p>",
        "One < two & three &amp; &lt;four&gt; &copy;&eacute;",
        "<b>One <i>two</i></b> three <b><i>four</i> five</b>",
    ],
)
@pytest.mark.parametrize("markup_format", ["html", "xml"])
def test_a_translation_that_changes_nothing_changes_no_character(text: str, markup_format: MarkupFormat) -> None:
    """Except for the spelling of `&` and `<` in text."""
    expected = text.replace("< two & three", "&lt; two &amp; three")
    try:
        assert translate_markup(text, MarkupOptions(markup_format)) == expected
    except MarkupError:
        assert markup_format == "xml"


@given(st.text(alphabet="<>/abip!-&;= \"'\n.", max_size=60))
def test_any_text_is_html(text: str) -> None:
    document = read_document(text, HTML, split)
    assert len(document.gaps) == len(document.sentences) + 1


@pytest.mark.parametrize("markup_format", ["html", "xml"])
def test_the_levels_of_elements_are_limited(markup_format: MarkupFormat) -> None:
    def nested(levels: int) -> str:
        return f"{'<b>' * levels}a{'</b>' * levels}"

    chosen = MarkupOptions(markup_format)
    assert translate_markup(f"{nested(MAX_LEVELS)} b", chosen) == f"{nested(MAX_LEVELS)} b"
    with pytest.raises(MarkupError, match=f"more than {MAX_LEVELS} levels") as refused:
        read_document(nested(MAX_LEVELS + 1), chosen, split)
    assert refused.value.position == 3 * MAX_LEVELS


def test_elements_that_browsers_end_do_not_count_as_levels() -> None:
    text = "<p>a<li>b<tr><td>c" * (2 * MAX_LEVELS)
    assert len(sentences(f"<ul>{'<li><p>a' * (2 * MAX_LEVELS)}</ul>")) == 2 * MAX_LEVELS
    assert sentences(f"<table>{'<tr><td>c' * (2 * MAX_LEVELS)}</table>{text[:3]}d")[-1] == "d"


@pytest.mark.parametrize(
    "content",
    [
        *('<b id="1">12:30. Ab</b> cd.', 'Ab <b id="1">cd. 12:30.</b>', '<b id="1">Ab. 12. Cd</b> ef.'),
        '<b id="1">12.</b> Ab cd. <i id="2">13.</i>',
    ],
)
def test_text_without_a_letter_stays_in_its_element(content: str) -> None:
    assert translate_markup(f"<p>{content}</p>", HTML) == f"<p>{content}</p>"
