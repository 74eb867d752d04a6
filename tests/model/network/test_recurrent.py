"""Recurrent models: cells and layers follow the papers."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from dragoman.model.config import RecurrentConfig
from dragoman.model.network.recurrent import BahdanauDecoder, GatedCell, LuongDecoder, Recurrent
from dragoman.model.network.translation_model import DecoderState
from dragoman.model.search import generate_beam, generate_greedy
from dragoman.model.tokenizer.tokenizer import BOS_ID, PAD_ID
from tests.support import recurrent_models
from tests.support.recurrent_models import VOCABULARY, Kind, name_kind, ragged_ids, random_ids, random_recurrent

every_kind = pytest.mark.parametrize("kind", recurrent_models.KINDS, ids=name_kind)


def decode_by_steps(model: Recurrent, source: Tensor, target: Tensor) -> tuple[Tensor, DecoderState]:
    state = model.start(model.encode(source))
    logits = []
    for token_ids in target.unbind(dim=1):
        step_logits, state = model.decode_step(token_ids, state)
        logits.append(step_logits)
    return torch.stack(logits, dim=1), state


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@every_kind
def test_rows_of_a_state_can_be_taken_apart_and_put_in_another_order(kind: Kind) -> None:
    """As in beam search."""
    model = random_recurrent(**kind)
    source, target = ragged_ids([5, 8, 2]), random_ids(3, 4, seed=2)
    order = torch.tensor([2, 0, 0])
    _, state = decode_by_steps(model, source, target)
    reordered = {name: tensor[order] for name, tensor in state.items()}
    token_ids = random_ids(3, 1, seed=3)[:, 0]
    expected = model(source[order], torch.cat((target[order], token_ids[:, None]), dim=1))[:, -1]
    assert_close(model.decode_step(token_ids, reordered)[0], expected)


@every_kind
def test_search_scores_equal_those_of_the_whole_decoder(kind: Kind) -> None:
    """A beam of one is greedy search, and its score equals that of teacher forcing."""
    model = random_recurrent(**kind)
    source, target = random_ids(1, 6), [BOS_ID]
    (found,) = generate_greedy(model, source.tolist())
    for _ in found.gaps:
        target.append(int(model(source, torch.tensor([target]))[0, -1].argmax()))
    log_probabilities = model(source, torch.tensor([target[:-1]]))[0].log_softmax(dim=-1)
    score = sum(float(row[token_id]) for row, token_id in zip(log_probabilities.detach(), target[1:], strict=True))
    assert list(found.target_ids) == target[1:][: len(found.target_ids)]
    assert found.score == pytest.approx(score, abs=1e-4)
    (beam_of_one,) = generate_beam(model, source.tolist(), beam_size=1, length_penalty=0.0)
    assert beam_of_one.target_ids == found.target_ids


@every_kind
def test_attention_maps_divide_each_target_tokens_attention_over_its_source(kind: Kind) -> None:
    maps = random_recurrent(**kind).attention_maps(ragged_ids([7, 3]), random_ids(2, 5, seed=2))
    assert maps.shape == (2, 1, 5, 7)
    assert not maps[1, :, :, 3:].any()
    sums = maps.sum(dim=-1)
    if kind["attention"] == "local_predictive":
        assert ((sums > 0) & (sums <= 1 + 1e-6)).all()
    else:
        assert_close(sums, torch.ones_like(sums))


def test_a_monotonic_window_moves_along_the_source() -> None:
    maps = random_recurrent(attention="local_monotonic", window=1).attention_maps(random_ids(1, 6), random_ids(1, 8))
    seen = [row.nonzero()[:, 0].tolist() for row in maps[0, 0]]
    assert seen == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5], [4, 5], [4, 5]]


def test_a_cell_is_a_gated_recurrent_unit() -> None:
    cell, expected = GatedCell(8), nn.GRUCell(8, 8)
    parameters = (cell.input.weight, cell.recurrent.weight, cell.input.bias, cell.recurrent.bias)
    expected.load_state_dict(dict(zip(expected.state_dict(), parameters, strict=True)))
    inputs, hidden = torch.randn(3, 8), torch.randn(3, 8)
    assert_close(cell(cell.input(inputs), hidden), expected(inputs, hidden))


def test_the_first_decoder_state_comes_from_the_backward_annotation_of_the_first_token() -> None:
    """Only this annotation covers the whole source."""
    model = random_recurrent(attention="additive", decoder_layers=2)
    memory = model.encode(ragged_ids([6, 4]))
    first = torch.tanh(model.decoder.initial(memory.states[:, 0, 8:]))
    state = model.start(memory)
    assert_close(torch.cat((state["hidden_0"], state["hidden_1"]), dim=1), first)
    assert_close(memory.states[1, 0], model.encode(ragged_ids([6, 4])[1:, :4]).states[0, 0])


def test_bahdanaus_attention_looks_before_the_step_and_its_readout_is_a_maxout_layer() -> None:
    model = random_recurrent(attention="additive")
    decoder, cell = model.decoder, model.decoder.cells[0]
    assert isinstance(decoder, BahdanauDecoder)
    assert isinstance(cell, GatedCell)
    memory, token_ids = model.encode(random_ids(2, 5)), random_ids(2, 1, seed=2)
    embedded = model.embed(token_ids[:, 0])
    (old,) = decoder.start(memory.states)
    source = decoder.source(memory.states, torch.tensor([5, 5]))
    context = (decoder.alignment(old, source, torch.tensor(0))[:, :, None] * memory.states).sum(dim=1)
    new = cell(cell.input(embedded) + decoder.attended_input(context), old)
    units = decoder.maxout(torch.cat((new, context, embedded), dim=1))
    assert_close(model.decode(token_ids, memory)[:, 0], torch.maximum(units[:, 0::2], units[:, 1::2]))


def test_luongs_attention_looks_after_the_step_and_is_fed_into_the_next_one() -> None:
    model = random_recurrent(attention="dot")
    decoder, cell = model.decoder, model.decoder.cells[0]
    assert isinstance(decoder, LuongDecoder)
    assert isinstance(cell, GatedCell)
    memory, target = model.encode(random_ids(2, 5)), random_ids(2, 3, seed=2)
    hidden, attentional = decoder.start(memory.states)
    expected = []
    for token_ids in target.unbind(dim=1):
        inputs = cell.input(model.embed(token_ids)) + decoder.attended_input(attentional)
        hidden = cell(inputs, hidden)
        weights = (memory.states @ hidden[:, :, None])[:, :, 0].softmax(dim=-1)
        context = (weights[:, :, None] * memory.states).sum(dim=1)
        attentional = torch.tanh(decoder.attentional(torch.cat((context, hidden), dim=1)))
        expected.append(attentional)
    assert_close(model.decode(target, memory), torch.stack(expected, dim=1))


@pytest.mark.parametrize("attention", recurrent_models.ATTENTIONS)
def test_additive_attention_has_bahdanaus_decoder_and_every_other_one_luongs(attention: str) -> None:
    expected = BahdanauDecoder if attention == "additive" else LuongDecoder
    assert type(random_recurrent(attention=attention).decoder) is expected


def test_the_second_encoder_layer_reads_both_directions_of_the_first() -> None:
    """So the last token influences even the forward annotation of the first one."""
    source = random_ids(1, 6)
    changed = source.clone()
    changed[0, 5] = source[0, 5] % (VOCABULARY - 1) + 1

    def forward_annotation(layers: int, ids: Tensor) -> Tensor:
        return random_recurrent(attention="dot", encoder_layers=layers).encode(ids).states[0, 0, :8]

    assert torch.equal(forward_annotation(1, source), forward_annotation(1, changed))
    assert not torch.allclose(forward_annotation(2, source), forward_annotation(2, changed))


def test_embeddings_are_scaled() -> None:
    model, ids = random_recurrent(), random_ids(2, 5)
    assert_close(model.embed(ids), model.embedding.weight[ids] * 4)


def test_recurrent_matrices_start_orthogonal() -> None:
    model = Recurrent(RecurrentConfig(architecture="recurrent", d_model=16), VOCABULARY, PAD_ID)
    cell = model.decoder.cells[0]
    assert isinstance(cell, GatedCell)
    for matrix in (cell.recurrent.weight, model.encoder.get_parameter("weight_hh_l0")):
        for gate in matrix.chunk(3):
            assert_close(gate @ gate.T, torch.eye(len(gate)))


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"d_model: expected an even number.*, got 15"):
        RecurrentConfig(architecture="recurrent", d_model=15)
