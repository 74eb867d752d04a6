"""`SearchOptions.constrained` is true for options that restrict tokens."""

import pytest

from serve.search.options import SearchOptions


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(max_target_tokens=9, min_target_tokens=1),
        SearchOptions(max_target_tokens=9, repetition_penalty=0.5),
        SearchOptions(max_target_tokens=9, no_repeat_ngram_tokens=2),
        SearchOptions(max_target_tokens=9, suppressed_ids=(4,)),
        SearchOptions(max_target_tokens=9, target_prefix=(0,)),
        SearchOptions(max_target_tokens=9, forced_end=True),
    ],
)
def test_options_that_forbid_or_force_tokens_are_constraints(options: SearchOptions) -> None:
    assert options.constrained


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(max_target_tokens=9),
        SearchOptions(max_target_tokens=9, beam_size=4, length_penalty=2.0),
        SearchOptions(max_target_tokens=9, temperature=1.0, top_k=3, top_p=0.5),
    ],
)
def test_options_of_the_search_are_no_constraints(options: SearchOptions) -> None:
    assert not options.constrained
