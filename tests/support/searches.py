"""Searches of all kinds for the tests: a grid of options, and Hypothesis strategies for mixtures."""

from typing import Any

from hypothesis import strategies as st

from dragoman.serve.search.hypothesis import Hypothesis
from dragoman.serve.search.options import SearchOptions
from tests.support.cases import cases
from tests.support.fakes import ENDLESS_ID, FIRST_ID, VOCABULARY

SOURCES = [(3,), (4, 5), (9, 9, 9), (5, 8, 11, 2), (ENDLESS_ID,)]
GRID: dict[str, dict[str, Any]] = {
    name: {option: tuple(value) if isinstance(value, list) else value for option, value in options.items()}
    for name, options in cases(__file__).items()
}


def bits(hypothesis: Hypothesis) -> tuple[object, ...]:
    """Returns every field of a hypothesis, so that equal means bitwise equal."""
    *values, alignments = hypothesis
    return (*values, None if alignments is None else alignments.tobytes())


tokens = st.integers(FIRST_ID, VOCABULARY - 1)
source_texts = st.lists(st.integers(FIRST_ID, 50) | st.just(ENDLESS_ID), min_size=1, max_size=5).map(tuple)


@st.composite
def any_options(draw: st.DrawFn, longest: int) -> SearchOptions:
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
