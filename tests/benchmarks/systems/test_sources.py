"""Sources for decoders are reproducible and valid."""

import numpy as np

from benchmarks.systems.translating import draw_sources

EOS_ID = 3


def test_the_same_seed_draws_the_same_sources() -> None:
    first, second = (draw_sources(1, 5, 9, 100, EOS_ID) for _ in range(2))
    assert np.array_equal(first, second)


def test_a_source_ends_in_eos_and_holds_no_special_token_before() -> None:
    sources = draw_sources(1, 50, 9, 8, EOS_ID)
    assert (sources[:, -1] == EOS_ID).all()
    assert set(np.unique(sources[:, :-1])) == {4, 5, 6, 7}
