"""Whatever a graph or a caller passes, an operator runs or raises an error that names the input; it never crashes."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.native_graphs import cache_names, encode_graph, packed, step_graph
from tests.support.native_reference import Array, Shape, Transformer, cache_arrays, target_arrays
from tests.support.native_sessions import choose_session, open_graph

CASES = cases(__file__)

SLOTS, CAPACITY, POSITIONS = 3, 32, 20
Kind = Literal["fp32", "int8", "recurrent fp32", "recurrent int8"]
SHAPES: dict[Kind, Shape] = {
    kind: Shape(
        precision="int8" if kind.endswith("int8") else "fp32",
        recurrent=kind.startswith("recurrent"),
        vocabulary=17,
        max_positions=POSITIONS,
        alignment_heads=((0, 1),),
    )
    for kind in get_args(Kind)
}
MODELS = {kind: Transformer(shape) for kind, shape in SHAPES.items()}
BLOCK_AXES = 6  # of a cache with blocks
PADDED_VOCABULARY = 32  # rows of the embedding
EXTREMES = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 16, 17, 19, 20, 31, 32, 2**31 - 1])
LISTS = st.lists(EXTREMES, max_size=4)
kinds = pytest.mark.parametrize("kind", SHAPES)
_SESSIONS: dict[tuple[str, str], Any] = {}


def session(operator: str, kind: Kind) -> Any:
    key = operator, kind
    if key not in _SESSIONS:
        graph: Callable[[Transformer], bytes] = encode_graph if operator == "Encode" else step_graph
        _SESSIONS[key] = open_graph(graph(MODELS[kind]))
    return _SESSIONS[key]


def caches(kind: Kind, side: str) -> dict[str, Array]:
    shape = SHAPES[kind]
    arrays = (target_arrays if side == "target" else cache_arrays)(shape, SLOTS, CAPACITY)
    return dict(zip(cache_names(shape, side), arrays, strict=True))


def runs(any_session: Any, feeds: dict[str, Array]) -> bool:
    """Returns whether a session accepts inputs; an error must name an input."""
    try:
        any_session.run(None, feeds)
    except Exception as error:
        if not any(name in str(error) for name in feeds):
            raise
        return False
    return True


def in_range(values: list[int], low: int, high: int) -> bool:
    return all(low <= value <= high for value in values)


@kinds
@settings(max_examples=100)
@given(ids=LISTS, lengths=LISTS, slots=LISTS)
def test_encode_runs_exactly_on_valid_inputs(kind: Kind, ids: list[int], lengths: list[int], slots: list[int]) -> None:
    feeds: dict[str, Array] = {
        "source_ids": np.array(ids, np.int64),
        "source_lengths": np.array(lengths, np.int32),
        "source_slots": np.array(slots, np.int32),
    }
    valid = (
        len(lengths) == len(slots) == len(set(slots))
        and sum(lengths) == len(ids)
        and in_range(ids, 0, PADDED_VOCABULARY - 1)
        and in_range(lengths, 1, POSITIONS)
        and in_range(slots, 0, SLOTS - 1)
    )
    assert runs(session("Encode", kind), feeds | caches(kind, "source")) == valid


@st.composite
def steps(draw: st.DrawFn) -> dict[str, list[int]]:
    """Draws inputs of Step: valid ones, of which up to two are replaced by anything."""
    rows = draw(st.integers(0, SLOTS))

    def some(low: int, high: int, count: int = rows) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    feeds = {
        "token_ids": some(0, 16),
        "positions": some(0, POSITIONS - 1),
        "target_slots": draw(st.permutations(range(SLOTS)))[:rows],
        "source_slots": some(0, SLOTS - 1),
        "source_lengths": some(1, CAPACITY),
        "scored_rows": some(0, rows - 1, draw(st.integers(0, 4))) if rows else [],
        "best_count": some(0, 17, 1),
        "aligned": some(0, 2, 1),
    }
    for name in draw(st.lists(st.sampled_from(sorted(feeds)), max_size=2)):
        feeds[name] = draw(LISTS)
    return feeds


def valid_step(feeds: dict[str, list[int]]) -> bool:
    rows = len(feeds["token_ids"])
    lists = ("positions", "target_slots", "source_slots", "source_lengths")
    return (
        all(len(feeds[name]) == rows for name in lists)
        and len(set(feeds["target_slots"])) == rows
        and in_range(feeds["token_ids"], 0, 16)
        and in_range(feeds["positions"], 0, POSITIONS - 1)
        and in_range(feeds["target_slots"] + feeds["source_slots"], 0, SLOTS - 1)
        and in_range(feeds["source_lengths"], 1, CAPACITY)
        and in_range(feeds["scored_rows"], 0, rows - 1)
        and len(feeds["best_count"]) == len(feeds["aligned"]) == 1
        and in_range(feeds["best_count"], 0, 17)
        and in_range(feeds["aligned"], 0, 2)
    )


@kinds
@settings(max_examples=150)
@given(step=steps())
def test_step_runs_exactly_on_valid_inputs(kind: Kind, step: dict[str, list[int]]) -> None:
    feeds: dict[str, Array] = {
        name: np.array(values, np.int64 if name == "token_ids" else np.int32) for name, values in step.items()
    }
    feeds |= caches(kind, "target") | caches(kind, "source")
    assert runs(session("Step", kind), feeds) == valid_step(step)


def valid_feeds(kind: Kind) -> dict[str, Array]:
    values = {"token_ids": [1], "positions": [2], "target_slots": [1], "source_slots": [0], "source_lengths": [3],
              "scored_rows": [0], "best_count": [2], "aligned": [1]}  # fmt: skip
    feeds: dict[str, Array] = {
        name: np.array(value, np.int64 if name == "token_ids" else np.int32) for name, value in values.items()
    }
    return feeds | caches(kind, "target") | caches(kind, "source")


@kinds
@given(data=st.data())
def test_a_cache_of_another_shape_is_an_error(kind: Kind, data: st.DataObject) -> None:
    feeds = valid_feeds(kind)
    name = data.draw(st.sampled_from([name for name in feeds if "cache" in name or "scales" in name]))
    shape = list(feeds[name].shape)
    # A cache may have any number of slots, and blocks for any length; states have no blocks.
    free = {0, 2} if len(shape) == BLOCK_AXES else {0}
    free -= {0} if name.endswith("scales") else set()
    axis = data.draw(st.sampled_from(sorted({*range(len(shape))} - free)))
    shape[axis] = data.draw(st.sampled_from([0, 1, 3, 5, 64, 1000]).filter(lambda size: size != shape[axis]))
    feeds[name] = np.zeros(shape, feeds[name].dtype)
    assert not runs(session("Step", kind), feeds)


@kinds
def test_a_cache_without_slots_or_positions_has_no_valid_row(kind: Kind) -> None:
    for axis in (0, 2):
        feeds = valid_feeds(kind)
        for name in cache_names(SHAPES[kind], "target"):
            feeds[name] = np.delete(feeds[name], np.s_[:], axis=axis)
        assert not runs(session("Step", kind), feeds)


@given(rows=st.integers(0, 3), vocabulary=st.integers(0, 40), counts=LISTS)
def test_choose_runs_exactly_on_valid_inputs(rows: int, vocabulary: int, counts: list[int]) -> None:
    _SESSIONS.setdefault(("Choose", ""), choose_session())
    feeds = {"logits": np.zeros((rows, vocabulary), np.float32), "best_count": np.array(counts, np.int32)}
    valid = vocabulary > 0 and len(counts) == 1 and in_range(counts, 0, vocabulary)
    assert runs(_SESSIONS["Choose", ""], feeds) == valid


@kinds
@given(values=st.lists(st.floats(width=32), min_size=32, max_size=32), token=st.integers(0, 16))
def test_any_floats_in_weights_and_caches_are_computed(kind: Kind, values: list[float], token: int) -> None:
    feeds = valid_feeds(kind) | {"token_ids": np.array([token])}
    for array in feeds.values():
        if array.dtype == np.float32:
            array.reshape(-1)[: 32 * (array.size // 32)].reshape(-1, 32)[:] = values
    assert runs(session("Step", kind), feeds)


GRAPHS: dict[str, tuple[Callable[..., bytes], Callable[[Transformer], list[Array]]]] = {
    "Encode": (encode_graph, Transformer.encoder_tensors),
    "Step": (step_graph, Transformer.decoder_tensors),
}


def refused(graph: bytes, message: str) -> bool:
    with pytest.raises(Exception, match=message):
        open_graph(graph)
    return True


@kinds
@pytest.mark.parametrize("operator", GRAPHS)
def test_every_wrong_weight_is_named(operator: str, kind: Kind) -> None:
    graph, tensors_of = GRAPHS[operator]
    model = MODELS[kind]
    tensors = tensors_of(model)
    # A source vocabulary and positions may have any length.
    positions = 2 if SHAPES[kind].int8 else 1
    of_any_length = {positions, 0} if operator == "Encode" else {positions}
    for i, tensor in enumerate(tensors):
        longer = np.pad(tensor, [(0, 1), *[(0, 0)] * (tensor.ndim - 1)])
        for wrong in (tensor[..., None], tensor.astype(np.float64), *([] if i in of_any_length else [longer])):
            changed = [*tensors[:i], wrong, *tensors[i + 1 :]]
            assert refused(graph(model, tensors=changed), rf"weight {i}: .*expected")
    assert refused(graph(model, tensors=tensors[:-1]), "weights: expected")
    assert refused(graph(model, tensors=[*tensors, tensors[-1]]), "weights: expected")


@kinds
@pytest.mark.parametrize("operator", GRAPHS)
def test_packed_vectors_of_a_wrong_length_or_type_are_an_error(operator: str, kind: Kind) -> None:
    graph, tensors_of = GRAPHS[operator]
    model = MODELS[kind]
    tensors = packed(tensors_of(model))
    open_graph(graph(model, tensors=tensors, packed_vectors=1))
    for i in range(2 if SHAPES[kind].int8 else 1):
        vector = tensors[i]
        for wrong in (vector[:-1], np.append(vector, vector[:1]), vector.astype(np.float64), vector[:0]):
            changed = [*tensors[:i], wrong, *tensors[i + 1 :]]
            assert refused(graph(model, tensors=changed, packed_vectors=1), f"weight {i}: ")
        assert refused(graph(model, tensors=[*tensors[:i], *tensors[i + 1 :]], packed_vectors=1), "weight")


@pytest.mark.parametrize("operator", GRAPHS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *CASES["a wrong attribute is named"],
        ({"decoder_layers": 2**40}, "decoder_layers: expected 0 to"),
        ({"d_model": 2**62}, "d_model: expected 1 to"),
        ({"activation": "x" * 1000}, "activation|too large|not large enough"),
        ({"embedding_scale": float("nan")}, "embedding_scale: expected a finite number"),
    ],
    ids=str,
)
def test_a_wrong_attribute_is_named(operator: str, changes: dict[str, Any], message: str) -> None:
    graph, _ = GRAPHS[operator]
    assert refused(graph(MODELS["fp32"], **changes), message)


@pytest.mark.parametrize("vocabulary", [0, -1, 16, 2**40])
def test_a_wrong_vocabulary_is_an_error(vocabulary: int) -> None:
    assert refused(step_graph(MODELS["fp32"], vocabulary=vocabulary), "vocabulary|embedding")


def test_a_weight_that_is_no_constant_is_an_error() -> None:
    model = onnx.load_from_string(step_graph(MODELS["fp32"]))
    weight = model.graph.initializer.pop()
    model.graph.input.append(onnx.helper.make_tensor_value_info(weight.name, weight.data_type, list(weight.dims)))
    assert refused(model.SerializeToString(), "expected a constant")


@pytest.mark.parametrize("operator", GRAPHS)
def test_a_cache_of_another_type_is_an_error(operator: str) -> None:
    """The graph declares caches of floats, and the attributes say 8 bits, or the reverse."""
    graph, _ = GRAPHS[operator]
    assert refused(graph(MODELS["fp32"], precision="int8"), "expected inputs of int8 values and float32 scales")
    assert refused(
        graph(MODELS["int8"], precision="fp32"),
        "cache: expected outputs of float32 values|cache: expected inputs of float32",
    )
