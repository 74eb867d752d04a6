"""Options tell whether a sequence asks for more than the model's own choice."""

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
def test_whatever_forbids_or_forces_a_token_is_a_constraint(options: SearchOptions) -> None:
    assert options.constrained


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(max_target_tokens=9),
        SearchOptions(max_target_tokens=9, beam_size=4, length_penalty=2.0),
        SearchOptions(max_target_tokens=9, temperature=1.0, top_k=3, top_p=0.5),
    ],
)
def test_how_a_sequence_is_searched_for_is_no_constraint(options: SearchOptions) -> None:
    assert not options.constrained
