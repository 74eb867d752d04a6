"""The blocks of a step match the architecture in every variant."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.export.inspect.graph import Block, Node, StoredGraph, find_blocks, fold_blocks, read_graph
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import StateSpec
from tests.support.recurrent_models import BAHDANAU, RecurrentBundles

LAYER = ["self-attention", "cross-attention", "feed-forward"]
DECODERS = ("states_bundle", "modern_bundle", "recurrent_bundle", "bahdanau")


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder graph and its states."""

    graph: StoredGraph
    states: tuple[StateSpec, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        return find_blocks(self.graph, self.states)

    @property
    def titles(self) -> list[str]:
        return [block.title for block in self.blocks]


Decoders = Callable[[str], Decoder]


@pytest.fixture(scope="module")
def bahdanau(recurrent_bundles: RecurrentBundles) -> Bundle:
    return recurrent_bundles(BAHDANAU)[1]


@pytest.fixture(scope="module")
def decoders(request: pytest.FixtureRequest) -> Decoders:
    """The decoder of a bundle, by the name of its fixture."""

    @cache
    def read(name: str) -> Decoder:
        bundle = request.getfixturevalue(name)
        return Decoder(read_graph(bundle.decoder_path), bundle.manifest.states)

    return read


@pytest.mark.parametrize("name", ["states_bundle", "modern_bundle"])
def test_a_transformer_is_embedding_layers_and_projection(name: str, decoders: Decoders) -> None:
    """The layers can be folded; the final normalization of a pre-norm decoder does not prevent it."""
    assert decoders(name).titles == ["embedding", *LAYER * 2, "projection"]
    titles = [(len(one.rounds), [block.title for block in one.rounds[0]]) for one in fold_blocks(decoders(name).blocks)]
    assert titles == [(1, ["embedding"]), (2, LAYER), (1, ["projection"])]


def test_every_layer_of_a_transformer_takes_its_own_caches(decoders: Decoders) -> None:
    """It writes only the self-attention caches."""
    attentions = [block for block in decoders("states_bundle").blocks if "attention" in block.title]
    assert [[state.name for state in block.reads] for block in attentions] == [
        [f"{kind}_{part}_{layer}" for part in ("key", "value")] for layer in range(2) for kind in ("self", "cross")
    ]
    assert [block.writes == block.reads for block in attentions] == [True, False] * 2


def test_the_matrices_of_a_block_are_those_of_the_layer(decoders: Decoders) -> None:
    feed_forward = next(block for block in decoders("states_bundle").blocks if block.title == "feed-forward")
    assert [matrix.shape for matrix in feed_forward.matrices] == [(256, 1024), (1024, 256)]


def test_the_decoder_of_luong_attends_after_its_updates(decoders: Decoders) -> None:
    titles = ["embedding", *["recurrent update"] * 3, "cross-attention", "recurrent update", "projection"]
    assert decoders("recurrent_bundle").titles == titles
    blocks = decoders("recurrent_bundle").blocks
    written = [[state.name for state in block.writes] for block in blocks]
    assert written == [[], ["hidden_0"], ["hidden_1"], ["hidden_2"], [], ["attentional"], []]
    assert {state.name for state in blocks[1].reads} == {"hidden_0", "attentional"}


def test_the_decoder_of_bahdanau_attends_before_its_updates(decoders: Decoders) -> None:
    assert decoders("bahdanau").titles[1:3] == ["cross-attention, recurrent update", "recurrent update"]
    assert {"annotations", "keys"} <= {state.name for state in decoders("bahdanau").blocks[1].reads}


@pytest.mark.parametrize("name", DECODERS)
def test_every_operator_is_in_one_block_and_every_state_is_used(name: str, decoders: Decoders) -> None:
    decoder = decoders(name)
    assert sum(block.nodes for block in decoder.blocks) == len(decoder.graph.nodes)
    assert {state for block in decoder.blocks for state in block.reads} == set(decoder.states)
    updated = {state for state in decoder.states if state.kind != "source"}
    assert {state for block in decoder.blocks for state in block.writes} == updated


def test_a_state_that_no_token_reaches_is_written_by_the_last_block() -> None:
    graph = StoredGraph(
        inputs=(),
        outputs=(),
        nodes=(Node("Gather", ("table", "token_ids"), ("logits",)), Node("Neg", ("past_clock",), ("present_clock",))),
        weights={},
    )
    clock = StateSpec(name="clock", shape=(1,))
    (block,) = find_blocks(graph, (clock,))
    assert (block.reads, block.writes) == ((clock,), (clock,))


def plain_block(title: str) -> Block:
    return Block(title, nodes=1, matrices=(), reads=(), writes=())


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_folding_loses_no_block_and_changes_no_order(titles: list[str]) -> None:
    folded = fold_blocks(list(map(plain_block, titles)))
    assert [block.title for one in folded for blocks in one.rounds for block in blocks] == titles
    assert all(blocks == one.rounds[0] for one in folded for blocks in one.rounds)


def test_the_longest_repetition_is_folded() -> None:
    (folded,) = fold_blocks(list(map(plain_block, "aabaab")))
    assert [[block.title for block in blocks] for blocks in folded.rounds] == [["a", "a", "b"]] * 2
