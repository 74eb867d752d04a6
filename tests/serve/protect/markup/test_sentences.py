"""Documents become sentences: which tags end one, what is not translated, and what stays between sentences."""

import pytest

from dragoman.serve.protect.markup.elements import MAX_LEVELS, MarkupFormat, MarkupOptions
from dragoman.serve.protect.markup.sentences import read_document
from dragoman.serve.protect.markup.tokens import MarkupError
from tests.support.cases import cases
from tests.support.markup import split, translate_markup

CASES = cases(__file__)

HTML = MarkupOptions("html")


def sentences(text: str, options: MarkupOptions = HTML) -> list[str]:
    return [sentence.text for sentence in read_document(text, options, split).sentences]


def options(markup_format: MarkupFormat, **tags: str) -> MarkupOptions:
    """Returns options from names of tags that blanks separate."""
    return MarkupOptions(markup_format, **{f"{name}_tags": frozenset(names.split()) for name, names in tags.items()})


@pytest.mark.parametrize(("text", "expected"), CASES["block tags of html end a sentence and inline ones do not"])
def test_block_tags_of_html_end_a_sentence_and_inline_ones_do_not(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(("text", "expected"), CASES["what is not translated is left out or kept as a whole"])
def test_what_is_not_translated_is_left_out_or_kept_in_its_sentence_as_a_whole(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(("tag", "ends"), CASES["a block ends an open paragraph unless it may stand inside of one"])
def test_a_block_ends_an_open_paragraph_unless_it_may_stand_inside_of_one(tag: str, ends: bool) -> None:
    """What ends the paragraph also ends its `translate=no`."""
    assert sentences(f"<p translate=no>One <{tag}>two") == (["two"] if ends else [])


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_sentence_may_begin_at_any_character(cut: int) -> None:
    plain = "ab cd ef"
    document = read_document(f"<p>{plain}</p>", HTML, lambda _: [[(0, cut), (cut, len(plain))]])
    assert [sentence.source for sentence in document.sentences] == [plain[:cut], plain[cut:]]


@pytest.mark.parametrize(("text", "expected"), CASES["an element of xml ends a sentence unless text stands next to it"])
def test_an_element_of_xml_ends_a_sentence_unless_text_stands_next_to_it(text: str, expected: list[str]) -> None:
    """An element inside of text is part of the sentence with all elements inside of it."""
    assert sentences(text, MarkupOptions("xml")) == expected


@pytest.mark.parametrize(("text", "chosen", "expected"), CASES["clients choose what splits and what is ignored"])
def test_clients_choose_what_splits_and_what_is_ignored(
    text: str, chosen: tuple[MarkupFormat, dict[str, str]], expected: list[str]
) -> None:
    markup_format, tags = chosen
    assert sentences(text, options(markup_format, **tags)) == expected


@pytest.mark.parametrize("text", CASES["a translation that changes nothing changes no character"])
@pytest.mark.parametrize("markup_format", ["html", "xml"])
def test_a_translation_that_changes_nothing_changes_no_character(text: str, markup_format: MarkupFormat) -> None:
    """Except for the spelling of `&` and `<` in text."""
    expected = text.replace("< two & three", "&lt; two &amp; three")
    try:
        assert translate_markup(text, MarkupOptions(markup_format)) == expected
    except MarkupError:
        assert markup_format == "xml"


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


@pytest.mark.parametrize("content", CASES["text without a letter stays in its element"])
def test_text_without_a_letter_stays_in_its_element(content: str) -> None:
    assert translate_markup(f"<p>{content}</p>", HTML) == f"<p>{content}</p>"
