"""The native search returns the tokens and the score bits of the engine in Python, alone and in any mixture."""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dragoman.serve.bundle.shortlist import Shortlist
from dragoman.serve.native.loop import Loop, LoopError
from dragoman.serve.scheduler.sequence import DecodingSequence
from dragoman.serve.search.constraints import constrain
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.search.sampling import draw
from tests.support.engines import Bench
from tests.support.fakes import ENDLESS_ID, VOCABULARY
from tests.support.native_build import needs_compiler
from tests.support.native_loop import NativeBench, library
from tests.support.searches import any_specs, bits

pytestmark = needs_compiler
SLOTS = 8
LIMIT = 9
Specs = Sequence[tuple[tuple[int, ...], SearchOptions]]


def results(bench: Bench | NativeBench, specs: Specs, gaps: Sequence[int] = ()) -> list[Any]:
    """Returns error and bits of all hypotheses of each spec; a gap is the steps before it joins."""
    sequences: list[DecodingSequence] = []
    for number, (source_ids, options) in enumerate(specs):
        bench.step(gaps[number] if gaps else 0)
        sequences.append(bench.submit(*source_ids, options=options))
    bench.run()
    return [(type(sequence.error), list(map(bits, sequence.hypotheses))) for sequence in sequences]


@pytest.fixture(scope="module")
def shortlist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shortlist, Path]:
    """Some of the tokens for each token of a source, and the file."""
    random, path = np.random.default_rng(8), tmp_path_factory.mktemp("list") / "shortlist.bin"
    entries = [random.integers(2, VOCABULARY, random.integers(0, 4)).tolist() for _ in range(ENDLESS_ID + 1)]
    found = Shortlist.of(4, entries)
    found.write(path)
    return found, path


def with_lists(specs: Specs, seed: int) -> Specs:
    """Returns the specs, most of them with candidates."""
    random = np.random.default_rng(seed)
    more = [tuple(random.integers(3, VOCABULARY, random.integers(0, 3)).tolist()) for _ in specs]
    return [
        (source_ids, options._replace(shortlist=bool(random.integers(4)), candidate_ids=ids))
        for (source_ids, options), ids in zip(specs, more, strict=True)
    ]


@pytest.mark.promise("R1")
@settings(max_examples=30)
@given(specs=any_specs(LIMIT, max_size=7), seed=st.integers(0, 99))
def test_any_mixture_returns_the_bits_of_the_reference(
    shortlist: tuple[Shortlist, Path], specs: list[tuple[tuple[int, ...], SearchOptions, int]], seed: int
) -> None:
    together = with_lists([(source_ids, options) for source_ids, options, _ in specs], seed)
    found = results(NativeBench(SLOTS, shortlist=shortlist[1]), together, [gap for *_, gap in specs])
    assert found == [results(Bench(SLOTS, shortlist=shortlist[0]), [spec])[0] for spec in together]


@pytest.mark.parametrize(
    ("options", "source_id", "field"),
    [
        ({}, ENDLESS_ID + 1, "source"),
        ({"candidate_ids": (VOCABULARY,)}, 3, "candidate_ids"),
        ({"candidate_ids": (-1,)}, 3, "candidate_ids"),
    ],
)
def test_the_loop_checks_the_tokens_of_a_shortlist(
    shortlist: tuple[Shortlist, Path], options: dict[str, Any], source_id: int, field: str
) -> None:
    bench = NativeBench(SLOTS, shortlist=shortlist[1])
    with pytest.raises(LoopError, match=field):
        bench.submit(source_id, options=SearchOptions(LIMIT, shortlist=True, **options))


def test_a_model_without_a_shortlist_takes_no_sequence_that_needs_one() -> None:
    with pytest.raises(LoopError, match="shortlist"):
        NativeBench(SLOTS).submit(3, options=SearchOptions(LIMIT, shortlist=True))


@pytest.mark.parametrize("place", range(6))
def test_a_file_that_is_no_shortlist_is_rejected(shortlist: tuple[Shortlist, Path], tmp_path: Path, place: int) -> None:
    """Each number of its header is wrong but the checksum and the number of best ids, and one offset."""
    content = bytearray(shortlist[1].read_bytes())
    content[8 * (0, 2, 4, 5, 6, 9)[place] + 6] ^= 0x7F
    path = tmp_path / "shortlist.bin"
    path.write_bytes(content)
    with pytest.raises(LoopError, match=r"shortlist\.bin"):
        loop_of(path)
    path.write_bytes(content[:40])
    with pytest.raises(LoopError, match=r"shortlist\.bin"):
        loop_of(path)


def loop_of(path: Path | None) -> None:
    """Creates a loop, as a server does."""
    scheduler = NativeBench(SLOTS).scheduler
    Loop.create(library(), replace(scheduler.config, shortlist=path), -1).close()


logits_of_rows = arrays(np.float32, st.integers(3, 40), elements=st.floats(-30, 30, width=32) | st.just(-np.inf))


@settings(max_examples=100)
@given(
    logits=logits_of_rows.filter(lambda logits: np.isfinite(logits).any()),
    temperature=st.floats(0.05, 5),
    top_k=st.integers(0, 45),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.0]),
    number=st.floats(0, 1, exclude_max=True),
)
def test_a_number_draws_the_token_that_it_draws_in_numpy(
    logits: NDArray[np.float32], temperature: float, top_k: int, top_p: float, number: float
) -> None:
    expected = draw(logits, temperature, top_k, top_p, number)
    drawn = library().quick.driver_draw(
        logits.ctypes.data_as(ctypes.c_void_p),
        len(logits),
        *map(ctypes.c_double, (temperature,)),
        ctypes.c_int64(top_k),
        *map(ctypes.c_double, (top_p, number)),
    )
    # The exponentials of NumPy differ in the last bit, which moves the bounds of the tokens by as much.
    assert drawn == expected or abs(_share(logits, temperature, max(drawn, expected)) - number) < 1e-12


def _share(logits: NDArray[np.float32], temperature: float, token_id: int) -> float:
    weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    return float(weights[:token_id].sum() / weights.sum())


@given(data=st.data(), vocabulary=st.integers(4, 12))
def test_constraints_change_the_bits_that_they_change_in_numpy(data: st.DataObject, vocabulary: int) -> None:
    special = st.sampled_from([-np.inf, np.inf, np.nan, 0.0, -0.0, 3e38])
    logits = data.draw(arrays(np.float32, vocabulary, elements=st.floats(-9, 9, width=32) | special))
    ids = st.integers(0, vocabulary - 1)
    target_ids, suppressed = data.draw(st.lists(ids, max_size=9)), data.draw(st.lists(ids, max_size=3))
    size, minimum = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 9))
    penalty, end_id = data.draw(st.sampled_from([1.0, 1.3, 0.7])), 2
    rules: dict[str, Any] = {"min_target_tokens": minimum, "no_repeat_ngram_tokens": size}
    options = SearchOptions(max_target_tokens=9, repetition_penalty=penalty, suppressed_ids=tuple(suppressed), **rules)
    expected = logits.copy()
    constrain(expected, target_ids, options, end_id)
    arguments = (ctypes.c_int64 * len(target_ids))(*target_ids), ctypes.c_int64(len(target_ids))
    library().quick.driver_apply(
        *arguments,
        minimum,
        size,
        ctypes.c_float(penalty),
        (ctypes.c_int64 * len(suppressed))(*suppressed),
        ctypes.c_int64(len(suppressed)),
        ctypes.c_int64(end_id),
        logits.ctypes.data_as(ctypes.c_void_p),
        vocabulary,
    )
    np.testing.assert_array_equal(logits, expected)
