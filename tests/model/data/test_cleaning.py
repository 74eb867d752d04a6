"""Cleaning removes and counts noise, and leaves the other pairs unchanged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.config import CleaningConfig
from dragoman.model.data.cleaning import Reason, clean, hold_out
from dragoman.model.data.corpus import Corpus
from dragoman.model.errors import CorpusError

NOTHING = CleaningConfig(remove_duplicates=False, max_length_ratio=None)
SIDE = st.text("ab ", min_size=1, max_size=12).filter(str.strip)


def corpus_of(*pairs: tuple[str, str]) -> Corpus:
    return Corpus("en", "de", [source for source, _ in pairs], [target for _, target in pairs])


def pairs_of(corpus: Corpus) -> list[tuple[str, str]]:
    return list(zip(corpus.sources, corpus.targets, strict=True))


def count(reason: Reason, pairs: int) -> dict[Reason, int]:
    return {**dict.fromkeys(Reason, 0), reason: pairs}


def test_duplicates_go_and_the_first_stays() -> None:
    cleaned = clean(corpus_of(("a", "A"), ("b", "B"), ("a", "A"), ("a ", "\tA"), ("a", "B")), CleaningConfig())
    assert pairs_of(cleaned.corpus) == [("a", "A"), ("b", "B"), ("a", "B")]
    assert cleaned.dropped == count(Reason.DUPLICATE, 2)
    assert cleaned.read == 5


def test_pairs_with_swapped_sides_are_different() -> None:
    assert len(clean(corpus_of(("a", "b"), ("b", "a")), CleaningConfig()).corpus) == 2


def test_a_pair_of_absurdly_unlike_lengths_goes() -> None:
    fits, long, short = ("a" * 9, "A"), ("a" * 10, "A"), ("a", "A" * 10)
    cleaned = clean(corpus_of(fits, long, short), CleaningConfig())
    assert pairs_of(cleaned.corpus) == [fits]
    assert cleaned.dropped == count(Reason.RATIO, 2)


def test_length_is_counted_in_characters_without_white_space_at_the_ends() -> None:
    assert len(clean(corpus_of(("語", "ab"), ("  a  ", "A")), CleaningConfig(max_length_ratio=2.0)).corpus) == 2


def test_a_pair_with_a_long_side_goes() -> None:
    fits = ("abc", "ABC")
    cleaned = clean(corpus_of(fits, ("abcd", "A"), ("a", "ABCD")), CleaningConfig(max_characters=3))
    assert pairs_of(cleaned.corpus) == [fits]
    assert cleaned.dropped == count(Reason.LONG, 2)


def test_copies_go_if_that_is_wanted() -> None:
    corpus = corpus_of(("Berlin", "Berlin"), ("a", "A"))
    assert len(clean(corpus, CleaningConfig()).corpus) == 2
    cleaned = clean(corpus, CleaningConfig(remove_copies=True))
    assert pairs_of(cleaned.corpus) == [("a", "A")]
    assert cleaned.dropped == count(Reason.COPY, 1)


@pytest.mark.parametrize("loop", ["a pommmmel", "the the the the dog", "a dog, a dog, a dog, a dog, a cat"])
def test_pairs_with_a_loop_on_one_side_go_if_that_is_wanted(loop: str) -> None:
    kept = [("brrrrr", "a brrrrr"), ("1,000,000,000,000", "a billion ...... !!!!!"), ("three ooo", "a a a")]
    corpus = corpus_of((loop, "A"), *kept, ("A", loop))
    assert clean(corpus, CleaningConfig(max_length_ratio=None)).corpus == corpus
    cleaned = clean(corpus, CleaningConfig(max_length_ratio=None, remove_repetitions=True))
    assert pairs_of(cleaned.corpus) == kept
    assert cleaned.dropped == count(Reason.REPETITION, 2)


def test_blank_pairs_left_out_in_reading_are_counted() -> None:
    cleaned = clean(Corpus("en", "de", ["a"], ["A"], blank_pairs=3), CleaningConfig())
    assert cleaned.dropped == count(Reason.BLANK, 3)
    assert cleaned.read == 4


@given(pairs=st.lists(st.tuples(SIDE, SIDE), min_size=1))
def test_without_rules_everything_stays(pairs: list[tuple[str, str]]) -> None:
    corpus = corpus_of(*pairs)
    cleaned = clean(corpus, NOTHING)
    assert cleaned.corpus == corpus
    assert cleaned.read == len(pairs)


@given(pairs=st.lists(st.tuples(SIDE, SIDE)))
def test_every_pair_is_kept_or_counted_once_and_the_rest_keeps_its_order(pairs: list[tuple[str, str]]) -> None:
    config = CleaningConfig(remove_copies=True, max_length_ratio=2.0, max_characters=8)
    cleaned = clean(corpus_of(*pairs, ("ab", "ba")), config)
    assert cleaned.read == len(pairs) + 1
    positions = iter([*pairs, ("ab", "ba")])
    assert all(pair in positions for pair in pairs_of(cleaned.corpus))
    assert clean(cleaned.corpus, config).corpus == cleaned.corpus


def test_an_error_with_the_reasons_is_raised_if_no_pair_is_left() -> None:
    corpus = corpus_of(("a", "a"), ("b", "B" * 20))
    with pytest.raises(CorpusError, match=r"^en-de: cleaning leaves no pair: 1 copy, 1 ratio$"):
        clean(corpus, CleaningConfig(remove_copies=True))


@pytest.mark.parametrize(("pairs", "held"), [(10, 1), (25, 2), (40, 4), (100, 4)])
def test_the_last_pairs_are_held_out(pairs: int, held: int) -> None:
    """At most a tenth."""
    corpus = corpus_of(*((f"a{number}", f"A{number}") for number in range(pairs)))
    rest, validation = hold_out(clean(corpus, CleaningConfig()), 4)
    assert pairs_of(rest.corpus) + pairs_of(validation) == pairs_of(corpus)
    assert len(validation) == held
    assert rest.dropped == count(Reason.HELD_OUT, held)
    assert rest.read == pairs


def test_too_few_pairs_to_hold_some_out_are_refused() -> None:
    corpus = corpus_of(*((f"a{number}", f"A{number}") for number in range(9)))
    with pytest.raises(CorpusError, match=r"^en-de: expected at least 10 pairs .*, got 9$"):
        hold_out(clean(corpus, CleaningConfig()), 4)
