"""Searches of all kinds for the tests: a grid of options, and Hypothesis strategies for mixtures."""

from dataclasses import astuple
from typing import Any

from hypothesis import strategies as st

from dragoman.serve.search.hypothesis import Hypothesis
from dragoman.serve.search.options import SearchOptions
from tests.support.fakes import ENDLESS_ID, FIRST_ID, VOCABULARY

SOURCES = [(3,), (4, 5), (9, 9, 9), (5, 8, 11, 2), (ENDLESS_ID,)]
GRID: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam of 2": {"beam_size": 2},
    "beam of 5": {"beam_size": 5, "length_penalty": 0.6},
    "n-best": {"beam_size": 4, "hypotheses": 3},
    "impatient": {"beam_size": 4, "patience": 0.5},
    "patient": {"beam_size": 3, "patience": 2.0, "hypotheses": 3},
    "no length penalty": {"beam_size": 4, "length_penalty": 0.0},
    "covering": {"beam_size": 4, "coverage_penalty": 0.8, "hypotheses": 4},
    "aligned": {"alignments": True},
    "sampled": {"temperature": 1.0, "seed": 7},
    "samples": {"temperature": 1.7, "seed": 8, "hypotheses": 4},
    "top-k": {"temperature": 2.0, "top_k": 3, "seed": 9, "hypotheses": 2},
    "top-p": {"temperature": 3.0, "top_p": 0.7, "seed": 1, "hypotheses": 2},
    "long": {"min_target_tokens": 7},
    "long beam": {"min_target_tokens": 7, "beam_size": 3},
    "unrepetitive": {"repetition_penalty": 1.6},
    "unrepetitive beam": {"repetition_penalty": 1.6, "beam_size": 3},
    "no token twice": {"no_repeat_ngram_tokens": 1},
    "no pair twice": {"no_repeat_ngram_tokens": 2, "beam_size": 2},
    "suppressed": {"suppressed_ids": (3, 4, 5, 6)},
    "suppressed beam": {"suppressed_ids": (3, 4, 5, 6), "beam_size": 3},
    "prefixed": {"target_prefix": (5, 6, 5)},
    "prefixed beam": {"target_prefix": (5, 6, 5), "beam_size": 3, "hypotheses": 2},
    "prefixed samples": {"target_prefix": (5, 6), "temperature": 1.0, "hypotheses": 3},
    "new word": {"target_prefix": (5, 6), "new_word": True},
    "new word beam": {"target_prefix": (5,), "new_word": True, "beam_size": 3, "hypotheses": 2},
    "new word samples": {"target_prefix": (5, 6), "new_word": True, "temperature": 1.0, "hypotheses": 3},
    "started": {"target_prefix": (5, 6, 5), "start_tokens": 1},
    "started beam": {"target_prefix": (5,), "start_tokens": 1, "beam_size": 3, "hypotheses": 3},
    "started samples": {"target_prefix": (5, 6), "start_tokens": 2, "temperature": 1.0, "hypotheses": 3},
    "given": {"target_prefix": (5, 6, 5, 9), "forced_end": True},
    "given and empty": {"forced_end": True},
}


def bits(hypothesis: Hypothesis) -> tuple[object, ...]:
    """Returns every field of a hypothesis, so that equal means bitwise equal."""
    *values, alignments = astuple(hypothesis)
    return (*values, None if alignments is None else alignments.tobytes())


tokens = st.integers(FIRST_ID, VOCABULARY - 1)
source_texts = st.lists(st.integers(FIRST_ID, 50) | st.just(ENDLESS_ID), min_size=1, max_size=5).map(tuple)


@st.composite
def any_options(draw: st.DrawFn, longest: int) -> SearchOptions:
    """Draws any options that the interfaces accept."""
    limit = draw(st.integers(1, longest))
    sampled = draw(st.booleans())
    beam_size = 1 if sampled else draw(st.integers(1, 4))
    prefix = tuple(draw(st.lists(tokens, max_size=min(3, limit))))
    return SearchOptions(
        max_target_tokens=limit,
        min_target_tokens=draw(st.integers(0, limit)),
        beam_size=beam_size,
        patience=draw(st.sampled_from([0.5, 1.0, 2.0])),
        hypotheses=draw(st.integers(1, 4 if sampled else beam_size)),
        length_penalty=draw(st.sampled_from([0.0, 0.6, 1.0])),
        coverage_penalty=draw(st.sampled_from([0.0, 0.0, 0.3])),
        temperature=draw(st.sampled_from([0.3, 1.0, 2.0])) if sampled else 0.0,
        top_k=draw(st.integers(0, 5)),
        top_p=draw(st.sampled_from([1.0, 0.9, 0.4])),
        seed=draw(st.integers(0, 2**64 - 1)),
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.5])),
        no_repeat_ngram_tokens=draw(st.integers(0, 3)),
        suppressed_ids=tuple(draw(st.lists(tokens, max_size=3, unique=True))),
        target_prefix=prefix,
        new_word=draw(st.booleans()),
        start_tokens=draw(st.integers(0, len(prefix))),
        forced_end=beam_size == 1 and len(prefix) < limit and draw(st.booleans()),
        alignments=draw(st.booleans()),
    )


def any_specs(longest: int, max_size: int) -> st.SearchStrategy[list[tuple[tuple[int, ...], SearchOptions, int]]]:
    """Draws sources, options and the number of steps before each joins."""
    # The end token of an endless source has probability zero.
    spec = st.tuples(source_texts, any_options(longest), st.integers(0, 4)).filter(
        lambda spec: not (spec[1].forced_end and ENDLESS_ID in spec[0])
    )
    return st.lists(spec, min_size=1, max_size=max_size)
