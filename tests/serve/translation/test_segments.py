"""Texts are split into sentences and joined again without loss."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.translation.segments import SegmentedText

TEXTS = st.text(alphabet=st.sampled_from("ab .,;!?\n\r\t\u00a0\u2013。é()1"), max_size=60) | st.text(max_size=40)
LANGUAGES = st.sampled_from(["en", "de", "fr", "cs", "zh", "xx"])


def anything(_: str) -> bool:
    return True


@given(TEXTS, LANGUAGES, st.integers(1, 20))
def test_the_pieces_are_the_text(text: str, language: str, longest: int) -> None:
    passage = SegmentedText.of(text, language, lambda sentence: len(sentence) <= longest)
    assert passage.join(passage.sentences) == text


@given(TEXTS, LANGUAGES, st.integers(1, 20))
def test_every_sentence_is_bare_and_fits(text: str, language: str, longest: int) -> None:
    passage = SegmentedText.of(text, language, lambda sentence: len(sentence) <= longest)
    assert all(0 < len(sentence) <= longest for sentence in passage.sentences)
    assert all(sentence == sentence.strip() for sentence in passage.sentences)


@given(TEXTS, LANGUAGES)
def test_gaps_are_white_space(text: str, language: str) -> None:
    """Gaps contain no translatable text."""
    passage = SegmentedText.of(text, language, anything)
    assert "".join(passage.gaps).strip() == ""
    assert len(passage.gaps) == len(passage.sentences) + 1


@given(TEXTS, LANGUAGES)
def test_a_sentence_never_crosses_the_end_of_a_line(text: str, language: str) -> None:
    assert not any({"\n", "\r"} & set(sentence) for sentence in SegmentedText.of(text, language, anything).sentences)


def test_white_space_stays_where_it_was() -> None:
    passage = SegmentedText.of("  A man runs.  A dog, too!\n\n\tThe end.\n", "en", anything)
    assert passage.sentences == ("A man runs.", "A dog, too!", "The end.")
    assert passage.join(["Ein Mann läuft.", "Ein Hund auch!", "Ende."]) == (
        "  Ein Mann läuft.  Ein Hund auch!\n\n\tEnde.\n"
    )


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Dr. Smith lives in Washington.", "en"),
        ("Am 3. Oktober feiert z. B. Berlin.", "de"),
        ("Version 1.5 is out.", "en"),
        ("A man", "en"),
    ],
)
def test_a_sentence_is_not_cut_at_an_abbreviation(text: str, language: str) -> None:
    assert SegmentedText.of(text, language, anything).sentences == (text,)


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\u00a0\t"])
def test_a_blank_text_has_no_sentence(text: str) -> None:
    passage = SegmentedText.of(text, "en", anything)
    assert passage.sentences == ()
    assert passage.join([]) == text


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("one, two; three, four", ("one, two;", "three, four")),
        ("one two, three four", ("one two,", "three four")),
        ("one two three four", ("one two", "three four")),
        ("onetwothreefour", ("onetwot", "hreefour")),
    ],
)
def test_what_is_too_long_is_cut_where_it_hurts_least(text: str, parts: tuple[str, ...]) -> None:
    passage = SegmentedText.of(text, "en", lambda sentence: len(sentence) <= 12)
    assert passage.sentences == parts
    assert passage.cut_sentences == 1


def test_only_what_is_too_long_is_reported_as_cut() -> None:
    text = "Short. " + "word " * 20 + "end. Short again."
    passage = SegmentedText.of(text, "en", lambda sentence: len(sentence) <= 30)
    assert passage.cut_sentences == 1
    assert passage.sentences[0] == "Short."
    assert passage.sentences[-1] == "Short again."
