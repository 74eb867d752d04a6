"""A row of Step with a shortlist chooses as the whole vocabulary would without the other tokens, in any company."""

import math
from typing import Any, Literal

import numpy as np
import pytest

from tests.support.native_reference import Shape, Transformer, choose
from tests.support.native_sessions import Array, NativeModel, StepResult

Precision = Literal["fp32", "int8"]
VOCABULARY = 700
SHAPES = [
    Shape(precision=precision, vocabulary=VOCABULARY, heads=3, d_model=d_model, pre_norm=tied, tied=tied)
    for precision in ("fp32", "int8")
    for d_model, tied in ((21, False), (72, True))
]
# Whole blocks of 16, strips of 256 and what lies around them.
COUNTS = (1, 2, 15, 16, 17, 255, 256, 257, 513, VOCABULARY)
SOURCES = [[5, 6, 7], [8] * 17, [9, 10], [11]]
precisions = pytest.mark.parametrize("precision", ["fp32", "int8"])


def draw(count: int, seed: int = 0) -> list[int]:
    """Returns some tokens of the vocabulary in ascending order."""
    return sorted(np.random.default_rng(seed).choice(VOCABULARY, count, replace=False).tolist())


def open_model(shape: Shape, **options: Any) -> NativeModel:
    native = NativeModel(Transformer(shape), shortlists=True, in_place=True, **options)
    native.encode(SOURCES, list(range(len(SOURCES))))
    return native


def step(native: NativeModel, rows: list[int], lists: list[list[int]] | None, **options: Any) -> StepResult:
    """Computes the second token of rows by number; the sources of rows repeat."""
    sources = [row % len(SOURCES) for row in rows]
    lengths = [len(SOURCES[source]) for source in sources]
    given = [[0] * len(rows), rows, sources, lengths]
    native.step([row + 1 for row in rows], *given)
    return native.step([row + 3 for row in rows], [1] * len(rows), *given[1:], candidates=lists, **options)


def bits(*parts: Array) -> list[bytes]:
    return [part.tobytes() for part in parts]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("best_count", [0, 1, 8])
def test_a_list_leaves_the_logits_of_its_tokens_alone(shape: Shape, count: int, best_count: int) -> None:
    native, ids = open_model(shape), draw(count)
    whole, listed = step(native, [0], None), step(native, [0], [ids], best_count=best_count)
    expected = np.full(VOCABULARY, -math.inf, np.float32)
    expected[ids] = whole.logits[0, ids]
    assert bits(listed.logits[0]) == bits(expected)
    found = min(best_count, count)
    log_sum, scores, best = choose(expected, found)
    np.testing.assert_allclose(listed.log_sums[0], log_sum, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(listed.best_scores[0, :found], scores, rtol=1e-6, atol=1e-6)
    assert listed.best_ids[0, :found].tolist() == best.tolist()
    assert (listed.best_scores[0, found:] == -math.inf).all()


@precisions
@pytest.mark.parametrize("threads", [1, 3])
def test_a_row_with_a_list_has_the_same_bits_in_any_company(precision: Precision, threads: int) -> None:
    shape = Shape(precision=precision, vocabulary=VOCABULARY, d_model=64)
    lists = [draw(300, 1), [], draw(40, 2), draw(VOCABULARY, 3)]  # the rows of the second source have none
    together = open_model(shape, threads=threads)
    for order in (list(range(8)), [0, 4, 1, 5, 2, 6, 3, 7], [7, 2, 1, 0, 3, 6, 5, 4]):
        result = step(together, order, [lists[row % 4] for row in order])
        for place, row in enumerate(order):
            alone = step(open_model(shape), [row], [lists[row % 4]])
            assert alone[0] == result[place], row


@precisions
def test_a_row_without_a_list_has_the_bits_of_a_step_without_lists(precision: Precision) -> None:
    native = open_model(Shape(precision=precision, vocabulary=VOCABULARY))
    before = step(native, [0, 1, 2], None)
    assert step(native, [0, 1, 2], [[], draw(9), []])[2] == before[2]
    assert step(native, [0, 1, 2], [[], [], []])[1] == before[1]


@precisions
def test_a_slot_takes_the_list_of_its_next_source(precision: Precision) -> None:
    shape = Shape(precision=precision, vocabulary=VOCABULARY)
    native = open_model(shape)
    for seed, count in enumerate((300, 300, 20, 500)):
        ids = draw(count, seed)
        assert step(native, [0], [ids])[0] == step(open_model(shape), [0], [ids])[0]


@precisions
def test_models_with_equal_lists_keep_their_own_weights(precision: Precision) -> None:
    shape, ids = Shape(precision=precision, vocabulary=VOCABULARY), draw(30)
    models = [NativeModel(Transformer(shape, seed), shortlists=True, in_place=True) for seed in (1, 2, 1)]
    for model in models:
        model.encode(SOURCES, [0, 1, 2, 3])
    first, second, again = (step(model, [0], [ids])[0] for model in models)
    assert first == again != second


@precisions
def test_a_broken_row_with_a_list_stays_alone(precision: Precision) -> None:
    shape = Shape(precision=precision, vocabulary=VOCABULARY, tied=False)
    sick = Transformer(shape)
    sick.embedding.weight[3 + 1] = sick.embedding.scale[3 + 1] = math.nan
    healthy, broken = open_model(shape), NativeModel(sick, shortlists=True, in_place=True)
    broken.encode(SOURCES, [0, 1, 2, 3])
    lists = [draw(5, seed) for seed in range(2)]
    expected, result = (step(native, [0, 1], lists, best_count=9) for native in (healthy, broken))
    assert result[0] == expected[0]
    assert np.isnan(result.log_sums[1])
    assert np.isnan(result.best_scores[1]).all()


@pytest.mark.parametrize(
    ("ids", "ranges", "field"),
    [
        ([1, 2], [[0, 2]], "candidate_ranges"),
        ([1, 2], [[0, 2], [0, 3]], "candidate_ranges"),
        ([1, 2], [[0, 2], [-1, 2]], "candidate_ranges"),
        ([1, 2], [[0, 2], [2, 1]], "candidate_ranges"),
        ([1, VOCABULARY], [[0, 2], [0, 1]], "candidate_ids"),
        ([-1, 2], [[0, 2], [0, 1]], "candidate_ids"),
        ([2, 1], [[0, 2], [0, 1]], "candidate_ids"),
        ([1, 1], [[0, 2], [0, 1]], "candidate_ids"),
    ],
)
def test_lists_that_lie_are_rejected_by_name(ids: list[int], ranges: list[list[int]], field: str) -> None:
    native = open_model(Shape(vocabulary=VOCABULARY))
    feeds = native.feeds([1, 2], [0, 0], [0, 1], [0, 1], [3, 17])
    feeds |= {"candidate_ids": np.array(ids, np.int32), "candidate_ranges": np.array(ranges, np.int32)}
    caches = {"target_cache": native.target[0], "source_cache": native.source[0]}
    with pytest.raises(Exception, match=field):
        native.decoder.run(None, feeds | caches)


def test_rows_of_one_source_have_one_list() -> None:
    native = open_model(Shape(vocabulary=VOCABULARY))
    feeds = native.feeds([1, 2], [0, 0], [0, 1], [0, 0], [3, 3], candidates=[[1, 2], [1, 3]])
    caches = {"target_cache": native.target[0], "source_cache": native.source[0]}
    with pytest.raises(Exception, match="row 1"):
        native.decoder.run(None, feeds | caches)
