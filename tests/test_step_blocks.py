"""The blocks of a step are those of the architecture, whatever the operators: nothing in the code knows them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.bundle import DECODER_FILE
from export.graphs import graphs_of
from export.manifest import GraphVariant, Precision, StateSpec
from export.step_blocks import Block, find_blocks, fold_blocks
from export.stored_graph import Node, StoredGraph, TensorType, read_graph
from export.to_onnx import export_graphs
from model.translation_model import TranslationModel
from tests.recurrent_models import Kind, random_recurrent
from tests.toy import OPTIONS, random_model

LAYER = ["self-attention", "cross-attention", "feed-forward"]
LUONG: Kind = {"attention": "general", "decoder_layers": 3}
BAHDANAU: Kind = {"attention": "additive", "decoder_layers": 2}


def graph_of(
    model: TranslationModel, folder: Path, variant: GraphVariant = "cpu", precision: Precision = "fp32"
) -> tuple[StoredGraph, tuple[StateSpec, ...]]:
    exported = export_graphs(graphs_of(model, variant, precision), folder)
    return read_graph(folder / DECODER_FILE), exported.states


def blocks_of(model: TranslationModel, folder: Path, *options: Any) -> tuple[Block, ...]:
    return find_blocks(*graph_of(model, folder, *options))


@pytest.mark.parametrize("name", ["default", "pre-norm", "swiglu", "untied", "deep decoder"])
def test_a_transformer_is_embedding_layers_and_projection(name: str, tmp_path: Path) -> None:
    model = random_model(1, **OPTIONS[name])
    titles = [block.title for block in blocks_of(model, tmp_path)]
    assert titles == ["embedding", *LAYER * model.config.decoder_layers, "projection"]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("variant", ["cpu", "portable"])
def test_the_operators_make_no_difference(variant: GraphVariant, precision: Precision, tmp_path: Path) -> None:
    model = random_model(1, **OPTIONS["modern"])
    titles = [block.title for block in blocks_of(model, tmp_path, variant, precision)]
    assert titles == ["embedding", *LAYER * 2, "projection"]


def test_every_layer_of_a_transformer_takes_its_own_caches(tmp_path: Path) -> None:
    blocks = blocks_of(random_model(1, decoder_layers=2), tmp_path)
    attentions = [block for block in blocks if "attention" in block.title]
    reads = [[state.name for state in block.reads] for block in attentions]
    assert reads == [
        [f"{kind}_{part}_{layer}" for part in ("key", "value")] for layer in (0, 1) for kind in ("self", "cross")
    ]
    assert [block.writes == block.reads for block in attentions] == [True, False, True, False]


def test_the_matrices_of_a_block_are_those_of_the_layer(tmp_path: Path) -> None:
    blocks = blocks_of(random_model(1), tmp_path)
    feed_forward = next(block for block in blocks if block.title == "feed-forward")
    assert [matrix.shape for matrix in feed_forward.matrices] == [(32, 64), (64, 32)]


def test_the_decoder_of_luong_looks_at_the_source_after_its_updates(tmp_path: Path) -> None:
    blocks = blocks_of(random_recurrent(**LUONG), tmp_path)
    updates = ["recurrent update"] * 3
    expected = ["embedding", *updates, "cross-attention", "recurrent update", "projection"]
    assert [block.title for block in blocks] == expected
    assert [[state.name for state in block.writes] for block in blocks[1:4]] == [
        ["hidden_0"],
        ["hidden_1"],
        ["hidden_2"],
    ]
    assert "attentional" in [state.name for state in blocks[1].reads]


def test_the_decoder_of_bahdanau_looks_at_the_source_before_its_updates(tmp_path: Path) -> None:
    blocks = blocks_of(random_recurrent(**BAHDANAU), tmp_path)
    assert blocks[1].title == "cross-attention, recurrent update"
    assert {"annotations", "keys"} <= {state.name for state in blocks[1].reads}
    assert blocks[2].title == "recurrent update"


@pytest.mark.parametrize("kind", [LUONG, BAHDANAU, None], ids=["luong", "bahdanau", "transformer"])
def test_every_operator_is_in_one_block_and_every_state_is_used(kind: Kind | None, tmp_path: Path) -> None:
    model = random_model(1, decoder_layers=2) if kind is None else random_recurrent(**kind)
    graph, states = graph_of(model, tmp_path)
    blocks = find_blocks(graph, states)
    assert sum(block.nodes for block in blocks) == len(graph.nodes)
    assert {state for block in blocks for state in block.reads} == set(states)
    assert {state for block in blocks for state in block.writes} == {s for s in states if s.decoder_output is not None}


def test_the_layers_of_a_transformer_are_folded(tmp_path: Path) -> None:
    folded = fold_blocks(blocks_of(random_model(1, norm_position="pre", decoder_layers=3), tmp_path))
    assert [(len(one.rounds), [block.title for block in one.rounds[0]]) for one in folded] == [
        (1, ["embedding"]),
        (3, LAYER),
        (1, ["projection"]),
    ]


def test_a_state_that_no_token_reaches_is_written_by_the_last_block() -> None:
    graph = StoredGraph(
        inputs=(),
        outputs=(),
        nodes=(Node("Gather", ("table", "token_ids"), ("logits",)), Node("Neg", ("past_clock",), ("present_clock",))),
        tensors={"logits": TensorType("logits", "float32", ("R", 8), 32)},
        weights={},
    )
    clock = StateSpec(name="clock", shape=(1,))
    (block,) = find_blocks(graph, (clock,))
    assert (block.reads, block.writes) == ((clock,), (clock,))


def plain_block(title: str) -> Block:
    return Block(title, nodes=1, matrices=(), reads=(), writes=(), carries=())


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_folding_loses_no_block_and_changes_no_order(titles: list[str]) -> None:
    folded = fold_blocks(list(map(plain_block, titles)))
    unfolded = [block.title for one in folded for blocks in one.rounds for block in blocks]
    assert unfolded == titles
    assert all(blocks == one.rounds[0] for one in folded for blocks in one.rounds)


def test_the_longest_repetition_is_folded() -> None:
    (folded,) = fold_blocks(list(map(plain_block, "aabaab")))
    assert [[block.title for block in blocks] for blocks in folded.rounds] == [["a", "a", "b"]] * 2
