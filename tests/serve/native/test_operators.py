"""Encode, Step and Choose compute what an obvious reference computes, and a row's bits depend on that row alone."""

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest

from tests.support.native_graphs import encode_graph, packed, step_graph
from tests.support.native_reference import Row, Shape, Transformer, choose, read_cache
from tests.support.native_sessions import NativeModel, StepResult, choose_session, open_graph

# Results differ where a value lies at the edge of rounding to 8 bits.
TOLERANCE = {"fp32": 2e-5, "int8": 0.05}
PRECISIONS: tuple[Literal["fp32", "int8"], ...] = ("fp32", "int8")
ODD: dict[str, Any] = {"heads": 3, "d_model": 21, "d_ff": 35, "vocabulary": 300, "tied": False}
ODD |= {"alignment_heads": ((1, 2), (0, 0))}
SIZES: list[dict[str, Any]] = [
    {},
    ODD,
    {"heads": 1, "d_model": 72, "d_ff": 130, "layers": 1, "decoder_layers": 3, "alignment_heads": ((2, 0),)},
    {"heads": 8, "d_model": 64, "d_ff": 64, "layers": 0, "decoder_layers": 1, "vocabulary": 257},
]
NORMS: tuple[Literal["layer", "rms"], ...] = ("layer", "rms")
ACTIVATIONS: tuple[Literal["relu", "gelu", "silu", "swiglu"], ...] = ("relu", "gelu", "silu", "swiglu")
# Every pair of values of two properties.
KINDS = [((i + i // 2 + i // 8) % 2 == 1, *kind) for i, kind in enumerate(product(NORMS, ACTIVATIONS, PRECISIONS))]
SHAPES = [
    Shape(precision=precision, norm=norm, pre_norm=pre_norm, activation=activation, **SIZES[i % len(SIZES)])
    for i, (pre_norm, norm, activation, precision) in enumerate(KINDS)
]
SHAPES += [
    Shape(precision=precision, recurrent=recurrent, pre_norm=recurrent and size is ODD, **size)
    for precision, size, recurrent in product(PRECISIONS, SIZES[1:], (False, True))
]
LENGTHS = (1, 16, 5, 21)
memories = pytest.mark.parametrize("recurrent", [False, True])


def draw_sources(shape: Shape, lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    random = np.random.default_rng(3)
    return [random.integers(0, shape.vocabulary, length).tolist() for length in lengths]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_operators_compute_what_the_reference_computes(shape: Shape) -> None:
    model, random = Transformer(shape), np.random.default_rng(4)
    native = NativeModel(model)
    sources = draw_sources(shape)
    source_slots, target_slots, lengths = [3, 0, 5, 1], [2, 7, 0, 4], [len(source) for source in sources]
    native.encode(sources, source_slots)
    encoded = [model.encode(source) for source in sources]
    tolerance = TOLERANCE[shape.precision]
    for slot, pairs in zip(source_slots, encoded, strict=True):
        for layer, pair in enumerate(pairs):
            got = read_cache(shape, native.source, slot, layer, len(pair[0]))
            np.testing.assert_allclose(got, pair, atol=tolerance, rtol=tolerance)
    rows = [Row(pairs) for pairs in encoded]
    for position in range(19):
        token_ids = random.integers(0, shape.vocabulary, len(rows)).tolist()
        odd, places = position % 2 == 1, [position] * 4
        result = native.step(token_ids, places, target_slots, source_slots, lengths, best_count=5, aligned=odd)
        expected = [model.step(row, token) for row, token in zip(rows, token_ids, strict=True)]
        np.testing.assert_allclose(result.logits, [logits for logits, _ in expected], atol=tolerance, rtol=tolerance)
        for i, (_, alignments) in enumerate(expected):
            if odd:
                wanted = np.pad(alignments, ((0, 0), (0, result.alignments.shape[2] - lengths[i])))
                np.testing.assert_allclose(result.alignments[i], wanted, atol=tolerance)
            check_choice(result, i)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_packed_vectors_change_no_bit(precision: Literal["fp32", "int8"]) -> None:
    model = Transformer(Shape(precision=precision, **ODD))
    separate, together = NativeModel(model), NativeModel(model)
    tensors = packed(model.encoder_tensors()), packed(model.decoder_tensors())
    together.encoder = open_graph(encode_graph(model, tensors=tensors[0], packed_vectors=1))
    together.decoder = open_graph(step_graph(model, tensors=tensors[1], packed_vectors=1))
    sources = draw_sources(model.shape)
    for native in (separate, together):
        native.encode(sources, [3, 0, 5, 1])
    arguments = [1, 2, 3, 4], [0] * 4, [2, 7, 0, 4], [3, 0, 5, 1], [len(source) for source in sources]
    steps = [native.step(*arguments, aligned=True) for native in (separate, together)]
    for row in range(4):
        assert steps[0][row] == steps[1][row]


def check_choice(result: StepResult, row: int) -> None:
    """Compares what was chosen with the logits of the same step."""
    log_sum, scores, ids = choose(result.logits[row], result.best_ids.shape[1])
    np.testing.assert_allclose(result.log_sums[row], log_sum, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(result.best_scores[row], scores, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(result.best_ids[row], ids)


@pytest.mark.parametrize("precision", PRECISIONS)
@memories
def test_a_row_has_the_same_bits_in_any_company_at_any_place(precision: Any, *, recurrent: bool) -> None:
    shape = Shape(precision=precision, recurrent=recurrent, **ODD)
    model, random = Transformer(shape), np.random.default_rng(5)
    sources = draw_sources(shape, (9, 1, 17, 30, 2, 16, 5))
    tokens = random.integers(0, shape.vocabulary, (12, len(sources))).tolist()
    starts = [0, 3, 1, 0, 5, 2, 0]  # the step at which a row joins

    def run(order: list[int]) -> dict[tuple[int, int], list[bytes]]:
        """Returns the bits of each row at each of its positions; rows and slots are in this order."""
        native = NativeModel(model)
        for some in np.array_split(np.array(order), 2):
            if len(some):
                native.encode([sources[row] for row in some], [order.index(row) for row in some])
        bits: dict[tuple[int, int], list[bytes]] = {}
        for step in range(12):
            joined = [row for row in order if starts[row] <= step]
            if joined:
                result = native.step(
                    [tokens[step - starts[row]][row] for row in joined],
                    [step - starts[row] for row in joined],
                    [7 - order.index(row) for row in joined],
                    [order.index(row) for row in joined],
                    [len(sources[row]) for row in joined],
                    aligned=True,
                )
                bits |= {(row, step - starts[row]): result[i] for i, row in enumerate(joined)}
        return bits

    together = run([0, 1, 2, 3, 4, 5, 6])
    assert run([4, 6, 0, 2, 5, 1, 3]) == together
    for row in range(len(sources)):
        assert run([row]) == {key: bits for key, bits in together.items() if key[0] == row}


def translate(model: Transformer, *, rows: int = 20, steps: int = 10, **options: Any) -> list[list[bytes]]:
    """Returns the bits of greedy steps of some rows that share two sources."""
    native = NativeModel(model, slots=rows, **options)
    native.encode(draw_sources(model.shape, (30, 11)), [1, 4])
    tokens, bits = [1] * rows, []
    slots, lengths = [(1, 4)[row % 2] for row in range(rows)], [(30, 11)[row % 2] for row in range(rows)]
    for position in range(steps):
        tokens = [(token + row) % model.shape.vocabulary for row, token in enumerate(tokens)]
        result = native.step(tokens, [position] * rows, list(range(rows)), slots, lengths, aligned=True)
        bits.append([bit for row in range(rows) for bit in result[row]])
        tokens = result.best_ids[:, 0].tolist()
    return bits


@pytest.mark.parametrize("precision", PRECISIONS)
@memories
def test_caches_may_be_changed_in_place(precision: Any, *, recurrent: bool) -> None:
    model = Transformer(Shape(precision=precision, recurrent=recurrent, **ODD))
    assert translate(model, in_place=True) == translate(model, in_place=False)


@pytest.mark.parametrize("precision", PRECISIONS)
@memories
def test_bits_do_not_depend_on_the_number_of_threads(precision: Any, *, recurrent: bool) -> None:
    wide: dict[str, Any] = {"heads": 4, "d_model": 256, "d_ff": 512, "vocabulary": 1100}
    shape = Shape(precision=precision, recurrent=recurrent, alignment_heads=((0, 0),), **wide)
    model = Transformer(shape)
    one = translate(model, rows=40, steps=3, threads=1)
    for threads in (2, 3):
        assert translate(model, rows=40, steps=3, threads=threads) == one


@pytest.mark.parametrize("precision", PRECISIONS)
@memories
def test_a_session_may_run_in_several_threads_at_once(precision: Any, *, recurrent: bool) -> None:
    model = Transformer(Shape(precision=precision, recurrent=recurrent, **ODD))
    native = NativeModel(model)
    sources = draw_sources(model.shape)
    native.encode(sources, [0, 1, 2, 3])

    def steps(row: int) -> list[list[bytes]]:
        mine = NativeModel.__new__(NativeModel)
        mine.__dict__.update(native.__dict__, target=[array.copy() for array in native.target], in_place=True)
        return [mine.step([t], [t], [0], [row], [len(sources[row])], aligned=True)[0] for t in range(20)]

    alone = [steps(row) for row in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(steps, range(4))) == alone


@pytest.mark.parametrize("precision", PRECISIONS)
@memories
def test_nan_stays_in_its_row_and_its_slot_can_be_used_again(precision: Any, *, recurrent: bool) -> None:
    shape = Shape(precision=precision, recurrent=recurrent, tied=False)
    healthy, sick = Transformer(shape), Transformer(shape)
    for table in (sick.embedding, sick.source_embedding):
        table.weight[5] = table.scale[5] = math.nan
    sources, sick_sources = [[1, 2, 3], [4] * 20], [[1, 2, 3], [4] * 19 + [5]]

    def run(model: Transformer, some_sources: list[list[int]], bad_token: int) -> list[StepResult]:
        native = NativeModel(model)
        native.encode(some_sources, [0, 1])
        results = [native.step([6, 7, bad_token], [t] * 3, [0, 1, 2], [0, 1, 0], [3, 20, 3]) for t in range(3)]
        native.encode([[8, 9]], [1])
        return results + [native.step([t], [t], [2], [1], [2]) for t in range(2)]

    expected, got = run(healthy, sources, 6), run(sick, sick_sources, 5)
    for before, after in zip(expected[:3], got[:3], strict=True):
        assert after[0] == before[0]
        for row in (1, 2):
            assert np.isnan(after.log_sums[row])
            assert np.isnan(after.best_scores[row]).all()
    assert [result[0] for result in got[3:]] == [result[0] for result in expected[3:]]


def test_a_step_without_rows_has_empty_results() -> None:
    result = NativeModel(Transformer(Shape(precision="int8"))).step([], [], [], [], [], aligned=True)
    assert (result.logits.shape, result.log_sums.shape, result.best_ids.shape) == ((0, 37), (0,), (0, 3))


def test_logits_are_those_of_the_scored_rows_in_their_order() -> None:
    native = NativeModel(Transformer(Shape(vocabulary=600)))
    native.encode([[1, 2]], [0])
    feeds = native.feeds([1, 2, 3], [0] * 3, [0, 1, 2], [0] * 3, [2] * 3)
    caches = {"target_cache": native.target[0], "source_cache": native.source[0]}
    everything = native.decoder.run(["logits"], feeds | caches)[0]
    some = native.decoder.run(["logits"], feeds | caches | {"scored_rows": np.array([2, 0, 2], np.int32)})[0]
    assert np.array_equal(some, everything[[2, 0, 2]])


@pytest.mark.parametrize("vocabulary", [1, 15, 16, 255, 256, 257, 1000])
@pytest.mark.parametrize("count", [0, 1, 2, 9, 1000])
def test_choose_returns_the_best_of_changed_logits(vocabulary: int, count: int) -> None:
    count = min(count, vocabulary)
    random = np.random.default_rng(6)
    logits = np.round(random.normal(size=(9, vocabulary)) * 4).astype(np.float32)  # with ties
    logits[1, random.random(vocabulary) < 0.5] = -math.inf
    logits[2], logits[3, -1], logits[4, 0] = -math.inf, math.nan, math.inf
    log_sums, scores, ids = choose_session().run(None, {"logits": logits, "best_count": np.array([count], np.int32)})
    for row in range(len(logits)):
        log_sum, best, order = choose(logits[row], count)
        np.testing.assert_allclose(log_sums[row], log_sum, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(scores[row], best, rtol=1e-6, atol=1e-5)
        np.testing.assert_array_equal(ids[row], order)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_choose_has_the_bits_of_the_step(precision: Any) -> None:
    native = NativeModel(Transformer(Shape(precision=precision, vocabulary=700)))
    native.encode([[1, 2, 3]], [0])
    result = native.step([1, 2], [0, 0], [0, 1], [0, 0], [3, 3], best_count=8)
    feeds = {"logits": result.logits, "best_count": np.array([8], np.int32)}
    own = result.log_sums, result.best_scores, result.best_ids
    assert [part.tobytes() for part in choose_session().run(None, feeds)] == [part.tobytes() for part in own]
