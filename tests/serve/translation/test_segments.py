"""Texts become sentences and are joined again: without loss, in requests, responses and streams."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.translation.job import Job, SegmentedText
from dragoman.serve.translation.renderer import Renderer, TextParts
from dragoman.serve.translation.response import TokenScore, Translation, TranslationDelta
from dragoman.serve.translation.segments import (
    TargetVocabulary,
    TextModel,
    TextSplitter,
    has_letter,
    split_text,
    uncut_text,
)
from dragoman.serve.translation.streams import OrderedText
from tests.support.cases import cases
from tests.support.translators import NumberTokenizer, made_translation

CASES = cases(__file__)

CHARACTERS = st.sampled_from("ab .,;!?\n\r\t\u00a0\u200b\x01\u2013。é()1")
TEXTS = st.text(alphabet=CHARACTERS, max_size=60) | st.text(max_size=40)
LANGUAGES = st.sampled_from(["en", "de", "fr", "cs", "zh", "xx"])
TEXT = "  A man runs.  A dog, too!\n\n\tThe end.\n"
GREEDY = SearchOptions(max_target_tokens=9)


ANY = 1000


def anything(_: str) -> bool:
    return True


@given(TEXTS, LANGUAGES, st.integers(1, 20))
def test_sentences_and_the_white_space_between_them_are_the_text(text: str, language: str, longest: int) -> None:
    segmented = split_text(text, language, lambda sentence: len(sentence) <= longest, ANY)
    assert segmented.join(segmented.sentences) == text
    assert not has_letter("".join(segmented.gaps))
    assert len(segmented.gaps) == len(segmented.sentences) + 1
    for sentence in segmented.sentences:
        assert 0 < len(sentence) <= longest
        assert sentence == sentence.strip()
        assert has_letter(sentence)
        assert {"\n", "\r"}.isdisjoint(sentence)


@given(TEXTS, LANGUAGES)
def test_the_sentences_are_those_of_the_splitter_that_have_a_letter(text: str, language: str) -> None:
    found = [part for line in re.split(r"[\r\n]", text) for part in sentencex.segment(language, line)]
    assert split_text(text, language, anything, ANY).sentences == tuple(filter(has_letter, map(str.strip, found)))


@pytest.mark.parametrize(("text", "language"), CASES["a sentence is not cut at an abbreviation"])
def test_a_sentence_is_not_cut_at_an_abbreviation(text: str, language: str) -> None:
    assert split_text(text, language, anything, ANY).sentences == (text,)


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\u00a0\t", "\u200b", " \ufeff\n\x01\r\n\u2060"])
def test_a_blank_text_has_no_sentence(text: str) -> None:
    assert split_text(text, "en", anything, ANY).sentences == ()


@pytest.mark.parametrize(("text", "parts"), CASES["a sentence that is too long is cut where it hurts least"])
def test_a_sentence_that_is_too_long_is_cut_where_it_hurts_least(text: str, parts: tuple[str, ...]) -> None:
    segmented = split_text(text, "en", lambda sentence: len(sentence) <= 12, ANY)
    assert segmented.sentences == tuple(parts)
    assert segmented.cut_sentences == 1


def segment(
    *texts: str,
    prefix: str = "",
    split_sentences: bool = True,
    options: SearchOptions = GREEDY,
    max_sentences: int = ANY,
) -> Job:
    direction = BundleDirection(source="en", target="de")
    job = Job(
        texts=texts, target_prefixes=[prefix] * len(texts), direction=direction, options=options, deadline_seconds=7.0
    )
    splitter = TextSplitter(job, lambda sentence: len(sentence) <= 40, max_sentences)
    job.fill(list(splitter.split(texts) if split_sentences else map(uncut_text, texts)))
    return job


def sentences_of(job: Job) -> list[str]:
    return [sentence.text for sentence in job.sentences]


def translation(text: str, **different: Any) -> Translation:
    return made_translation(text, len(text), **different)


def join(job: Job, *translations: Translation) -> tuple[Translation, ...]:
    vocabulary = TargetVocabulary.of(NumberTokenizer.target_pieces, unk_id=3, eos_id=1)
    renderer = Renderer(TextModel(NumberTokenizer(), vocabulary, (1,), 9))
    return tuple(map(renderer.joined, TextParts.of(job, translations)))


def test_several_sentences_make_one_translation() -> None:
    segmented = segment(TEXT, "One.")
    assert sentences_of(segmented) == ["A man runs.", "A dog, too!", "The end.", "One."]
    text, one = join(segmented, *map(translation, ["Ab.", "C!", "Def.", "Eins."]))
    assert text.text == "  Ab.  C!\n\n\tDef.\n"
    assert (text.score, text.normalized_score) == (-9.0, -1.0)
    assert (text.target_tokens, text.source_tokens, text.sentences) == (9, 12, 3)
    assert one == translation("Eins.")


def aligned(text: str) -> Translation:
    """Returns a translation whose words are aligned in their order, from a sentence of as many words."""
    words = [match.span() for match in re.finditer(r"\S+", text)]
    return translation(text, alignments=(Alignment.of(words, words, np.eye(len(words))),))


def test_the_alignments_of_sentences_count_characters_of_the_text() -> None:
    (joined,) = join(segment(TEXT), *map(aligned, ["Ein Mann läuft.", "Ein Hund auch!", "Das Ende."]))
    assert joined.alignments is not None
    spans = [span for alignment in joined.alignments for span in alignment.target]
    assert [joined.text[span.start : span.end] for span in spans] == joined.text.split()
    starts = [alignment.source[0].start for alignment in joined.alignments]
    assert starts == [TEXT.index(sentence) for sentence in ("A man", "A dog", "The end")]


def test_the_alignments_of_all_alternatives_count_characters_of_the_text() -> None:
    segmented = segment("  A man.\n")
    (joined,) = join(segmented, replace(aligned("Ein Mann."), alternatives=(aligned("Der Mann."),)))
    for alternative in (joined, *joined.alternatives):
        assert alternative.alignments is not None
        text, spans = alternative.text, alternative.alignments[0].target
        assert [text[span.start : span.end] for span in spans] == text.split()


def test_a_text_that_is_not_to_be_split_stays_one_sentence() -> None:
    segmented = segment(TEXT, split_sentences=False)
    assert sentences_of(segmented) == [TEXT]
    assert join(segmented, translation("x")) == (translation("x"),)


EOS, LENGTH = FinishReason.EOS, FinishReason.LENGTH
A, B, C = (TokenScore(piece, -1.0) for piece in "abc")


@pytest.mark.parametrize(
    ("name", "parts", "joined"),
    [
        ("finish_reason", (LENGTH, EOS), LENGTH),
        ("finish_reason", (EOS, LENGTH), LENGTH),
        ("finish_reason", (EOS, EOS), EOS),
        ("cached", (None, None), None),
        ("cached", (True, False), False),
        ("cached", (True, True), True),
        ("tokens", ((A, B), (C,)), (A, B, C)),
        ("tokens", (None, None), None),
    ],
)
def test_a_joined_field_follows_from_those_of_the_sentences(name: str, parts: tuple[Any, Any], joined: object) -> None:
    (text,) = join(segment("One. Two."), *(translation("x", **{name: part}) for part in parts))
    assert getattr(text, name) == joined


@pytest.mark.parametrize("text", ["ab\n" * 5000, "word, " * 2000, "\ufdfa" * 5000])
def test_splitting_stops_at_the_first_sentence_beyond_the_limit(text: str) -> None:
    """Requests of many sentences took seconds before they were refused."""
    tried = list[str]()

    def fits(sentence: str) -> bool:
        tried.append(sentence)
        return len(sentence) <= 10

    direction = BundleDirection(source="en", target="de")
    job = Job(texts=[text], direction=direction, options=GREEDY, deadline_seconds=7.0)
    with pytest.raises(InvalidRequestError) as refused:
        list(TextSplitter(job, fits, 8).split([text]))
    assert refused.value.field == "text"
    # A long sentence is halved again and again before its first part fits.
    assert len(tried) <= 2 * 8 + len(text).bit_length()


def test_the_limit_of_sentences_holds_for_all_texts_together() -> None:
    texts = ["One. Two.", "Three. Four."]
    assert len(segment(*texts, max_sentences=4).sentences) == 4
    with pytest.raises(InvalidRequestError) as refused:
        segment(*texts, max_sentences=3)
    assert (refused.value.field, "3" in refused.value.problem) == ("text", True)


@pytest.mark.parametrize(
    ("options", "prefix", "field"),
    [({"beam_size": 2, "hypotheses": 2}, "", "options.hypotheses"), ({}, "Ein", "target_prefix[0]")],
)
def test_options_for_one_sentence_are_refused_for_several(options: dict[str, Any], prefix: str, field: str) -> None:
    search = SearchOptions(max_target_tokens=9, **options)
    with pytest.raises(InvalidRequestError) as refused:
        segment("One. Two.", prefix=prefix, options=search)
    assert refused.value.field == field
    segment("One.", prefix=prefix, options=search)
    segment("One. Two.", prefix=prefix, options=search, split_sentences=False)


@given(
    st.lists(st.lists(st.text("ab ", max_size=3), max_size=3), min_size=1, max_size=4).flatmap(
        lambda pieces: st.tuples(
            st.just(pieces), st.permutations([place for place, item in enumerate(pieces) for _ in (*item, "end")])
        )
    ),
    st.integers(0, 3),
)
def test_the_deltas_of_a_text_make_up_its_text_in_whatever_order_sentences_grow(
    drawn: tuple[list[list[str]], list[int]], cut_off: int
) -> None:
    """Token counts never decrease; only the last delta has a finish reason, and only it may be empty."""
    pieces, order = drawn
    text = SegmentedText(tuple("x" * len(pieces)), tuple(f"{place}\n" for place in range(len(pieces) + 1)), 0)
    ordered = OrderedText(0, text)
    deltas: list[TranslationDelta] = []
    sent = [0] * len(pieces)
    for place in order:
        number = sent[place]
        sent[place] += 1
        over = number == len(pieces[place])
        reason = (LENGTH if place == cut_off else EOS) if over else None
        piece = "" if over else pieces[place][number]
        delta = TranslationDelta(text_index=place, text=piece, target_tokens=number, finish_reason=reason)
        deltas += ordered.advance(place, delta)
    assert "".join(delta.text for delta in deltas) == text.join(["".join(item) for item in pieces])
    assert [delta.target_tokens for delta in deltas] == sorted(delta.target_tokens for delta in deltas)
    *before, last = deltas
    assert last.target_tokens == sum(map(len, pieces))
    assert all(delta.finish_reason is None and delta.text for delta in before)
    assert last.finish_reason is (LENGTH if cut_off < len(pieces) else EOS)
