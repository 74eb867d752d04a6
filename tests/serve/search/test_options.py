"""`SearchOptions.constrained` is true for options that forbid or force tokens."""

from typing import Any

import pytest

from serve.search.options import SearchOptions


@pytest.mark.parametrize(
    ("options", "constrained"),
    [
        ({"min_target_tokens": 1}, True),
        ({"repetition_penalty": 0.5}, True),
        ({"no_repeat_ngram_tokens": 2}, True),
        ({"suppressed_ids": (4,)}, True),
        ({"target_prefix": (0,)}, True),
        ({"forced_end": True}, True),
        ({}, False),
        ({"beam_size": 4, "length_penalty": 2.0}, False),
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.5}, False),
    ],
)
def test_options_that_forbid_or_force_tokens_are_constraints(options: dict[str, Any], *, constrained: bool) -> None:
    assert SearchOptions(max_target_tokens=9, **options).constrained is constrained
