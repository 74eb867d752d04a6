"""Recurrent encoder-decoders with the attention of Bahdanau et al. or Luong et al., the Transformer's ancestors.

A bidirectional encoder of gated recurrent units (GRU) annotates every source token; a recurrent decoder attends to the
annotations. Both decoders use GRUs (Luong et al. used LSTMs) and the same initial state, so that they differ in
attention only: Bahdanau's attends before its recurrent step, Luong's after. Source, target and output share one
embedding matrix.

Shapes: B rows, S source length, T target length, D width of embeddings, annotations and states, V vocabulary.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from dragoman.model.config import RecurrentConfig
from dragoman.model.network.alignment import (
    EncodedSource,
    PositionSampler,
    Reinforce,
    SampledDecode,
    make_alignment,
    most_probable,
)
from dragoman.model.network.layers import Dropout
from dragoman.model.network.translation_model import DecoderState, Memory, TranslationModel

# Maps alignment weights [B, S] to the weights of the context: unchanged, or a hard choice.
Choose = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Step:
    """The next recurrent state, each [B, D], the readout's input [B, F], and source weights [B, S] of a step."""

    present: list[Tensor]
    features: Tensor
    weights: Tensor


class GatedCell(nn.Module):
    """A gated recurrent unit (Cho et al. 2014, arXiv:1406.1078) that takes its input already projected.

    r = sigmoid(W_r x + U_r h), z = sigmoid(W_z x + U_z h), n = tanh(W_n x + r * (U_n h)), h' = (1 - z) * n + z * h. As
    in `torch.nn.GRU`, the reset gate acts after the matrix and z keeps the old state; in the paper the gate acts before
    the matrix.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.input = nn.Linear(d_model, 3 * d_model)
        self.recurrent = nn.Linear(d_model, 3 * d_model)

    def forward(self, inputs: Tensor, hidden: Tensor) -> Tensor:
        """Maps W x [B, 3 * D] and a state [B, D] to the next state [B, D]."""
        width = hidden.shape[1]
        recurrent: Tensor = self.recurrent(hidden)
        reset, update = (inputs[:, : 2 * width] + recurrent[:, : 2 * width]).sigmoid().chunk(2, dim=-1)
        new = torch.tanh(inputs[:, 2 * width :] + reset * recurrent[:, 2 * width :])
        return new + update * (hidden - new)


class RecurrentDecoder(nn.Module, ABC):
    """Layers of gated cells; the first one reads the last token and the attended source."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.alignment = make_alignment(config)
        self.cells = nn.ModuleList(GatedCell(config.d_model) for _ in range(config.decoder_layers))
        self.attended_input = nn.Linear(config.d_model, 3 * config.d_model, bias=False)
        self.initial = nn.Linear(config.d_model // 2, config.decoder_layers * config.d_model)
        self.dropout = Dropout(config.dropout)

    @abstractmethod
    def step(
        self, inputs: Tensor, past: Sequence[Tensor], source: EncodedSource, positions: Tensor, choose: Choose
    ) -> Step:
        """Decodes one target position.

        `inputs` [B, 3 * D] is `project` of the last token's embedding. `past` is the recurrent state from `start` or
        the previous step, each [B, D]. `positions` [B] or [] are the rows' target positions, from 0. `choose` is
        applied to the weights of the source positions.
        """

    @abstractmethod
    def readout(self, features: Tensor, embedded: Tensor) -> Tensor:
        """Maps step features [..., F] and the last tokens' embeddings [..., D] to states [..., D]."""

    def start(self, annotations: Tensor) -> list[Tensor]:
        """Returns the recurrent state before the first step, [B, D] per layer.

        It is tanh(W_s h_1), where h_1 is the backward encoder's annotation of the first position, which covers the
        whole source (Bahdanau et al. 2015, appendix A.2.2).
        """
        backward = annotations[:, 0, annotations.shape[-1] // 2 :]
        return list(torch.tanh(self.initial(backward)).chunk(len(self.cells), dim=-1))

    def source(self, annotations: Tensor, lengths: Tensor) -> EncodedSource:
        """Returns the positions to attend to, from annotations [B, S, D] and lengths [B]."""
        return EncodedSource.of(annotations, self.alignment.score.keys(annotations), lengths)

    def project(self, embedded: Tensor) -> Tensor:
        """Maps embeddings [..., D] to the first cell's projected input, [..., 3 * D]."""
        projected: Tensor = cast("GatedCell", self.cells[0]).input(embedded)
        return projected

    def _advance(self, inputs: Tensor, attended: Tensor, past: Sequence[Tensor]) -> list[Tensor]:
        """Advances all layers by one step.

        `inputs` [B, 3 * D] is `project` of the last token's embedding, `attended` [B, D] the first layer's other input,
        and `past` the state of each layer, [B, D].
        """
        first, *others = cast("Iterable[GatedCell]", self.cells)
        present = [first(inputs + self.attended_input(attended), past[0])]
        for cell, hidden in zip(others, past[1:], strict=True):
            present.append(cell(cell.input(self.dropout(present[-1])), hidden))
        return present


class BahdanauDecoder(RecurrentDecoder):
    """Attends before the step: s_i = f(s_{i-1}, y_{i-1}, c_i) (Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2).

    c_i = sum_j alpha_ij h_j is weighted by the previous state of the last layer, s_{i-1}. The readout is a maxout layer
    over s_i, y_{i-1} and c_i (appendix A.2.2, but with s_i as in equation 4, where the appendix has s_{i-1}).
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.maxout = nn.Linear(3 * config.d_model, 2 * config.d_model)

    def step(
        self, inputs: Tensor, past: Sequence[Tensor], source: EncodedSource, positions: Tensor, choose: Choose
    ) -> Step:
        """Decodes one target position."""
        weights = choose(self.alignment(past[-1], source, positions))
        context = weighted_sum(weights, source.annotations)
        present = self._advance(inputs, context, past)
        return Step(present, torch.cat((present[-1], context), dim=-1), weights)

    def readout(self, features: Tensor, embedded: Tensor) -> Tensor:
        """Returns the maximum of each pair of units: [..., 2 * D] and [..., D] -> [..., D]."""
        largest: Tensor = self.maxout(torch.cat((features, embedded), dim=-1)).unflatten(-1, (-1, 2)).amax(dim=-1)
        return largest


class LuongDecoder(RecurrentDecoder):
    """Attends after the step: h~_t = tanh(W_c [c_t; h_t]) (Luong et al. 2015, arXiv:1508.04025, equation 5).

    The attentional vector h~_t is both the readout and, by input feeding, an input of the next step (section 3.3). It
    is the last part of the recurrent state.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.attentional = nn.Linear(2 * config.d_model, config.d_model)

    def start(self, annotations: Tensor) -> list[Tensor]:
        """Returns the layers' initial states and an attentional vector of zeros."""
        hidden = super().start(annotations)
        return [*hidden, torch.zeros_like(hidden[0])]

    def step(
        self, inputs: Tensor, past: Sequence[Tensor], source: EncodedSource, positions: Tensor, choose: Choose
    ) -> Step:
        """Decodes one target position."""
        *hidden, fed = past
        present = self._advance(inputs, fed, hidden)
        weights = choose(self.alignment(present[-1], source, positions))
        context = weighted_sum(weights, source.annotations)
        attentional = torch.tanh(self.attentional(torch.cat((context, present[-1]), dim=-1)))
        return Step([*present, attentional], attentional, weights)

    def readout(self, features: Tensor, _embedded: Tensor) -> Tensor:
        """Returns the attentional vectors unchanged."""
        return features


def weighted_sum(weights: Tensor, annotations: Tensor) -> Tensor:
    """Returns the context, float [B, D], from weights [B, S] and annotations [B, S, D]."""
    return torch.bmm(weights[:, None], annotations)[:, 0]


class Recurrent(TranslationModel):
    """Encoder-decoder of gated recurrent units with attention (arXiv:1409.0473, arXiv:1508.04025).

    Attributes:
        state_names: names of the recurrent state's parts, in the decoder's order.
        reinforce: the loss term for `decode_sampled`; None without hard attention.
    """

    def __init__(self, config: RecurrentConfig, vocabulary_size: int, pad_id: int) -> None:
        super().__init__(config, vocabulary_size, pad_id)
        self.config = config
        self.state_names = recurrent_names(config)
        self.embedding = nn.Embedding(vocabulary_size, config.d_model)
        self.dropout = Dropout(config.dropout)
        # Half the width per direction: annotations are as wide as the decoder's states, as the dot score requires.
        self.encoder = nn.GRU(
            config.d_model,
            config.d_model // 2,
            config.encoder_layers,
            batch_first=True,
            dropout=config.dropout if config.encoder_layers > 1 else 0.0,
            bidirectional=True,
        )
        decoder = BahdanauDecoder if config.attention == "additive" else LuongDecoder
        self.decoder = decoder(config)
        self.reinforce = Reinforce() if config.hard else None
        self._initialize()

    @property
    def output_weight(self) -> Tensor:
        """The embedding matrix, [V, D]."""
        return self.embedding.weight

    def encode(self, source_ids: Tensor) -> Memory:
        """Annotates source ids [B, S]; padding has no influence, and annotations of zeros."""
        valid = source_ids != self.pad_id
        packed = pack_padded_sequence(
            self.embed(source_ids), valid.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=source_ids.shape[1])
        return Memory(states, valid)

    def decode(self, target_ids: Tensor, memory: Memory) -> Tensor:
        """Maps target ids [B, T] to the readouts [B, T, D] that predict the token after each of them.

        Hard attention takes the most probable position here, which has no gradient; train with `decode_sampled`.
        """
        embedded = self.embed(target_ids)
        return self._readout(self._unroll(embedded, memory, self.choose), embedded)

    def decode_sampled(self, target_ids: Tensor, memory: Memory) -> SampledDecode:
        """Decodes target ids [B, T] with sampled positions, to train hard attention."""
        embedded = self.embed(target_ids)
        sampler = PositionSampler.draw(len(target_ids), target_ids.device)
        states = self._readout(self._unroll(embedded, memory, sampler), embedded)
        return SampledDecode(
            states, torch.stack(sampler.log_probabilities, dim=1), torch.stack(sampler.entropies, dim=1)
        )

    def project(self, states: Tensor) -> Tensor:
        """Maps readouts [..., D] to logits [..., V] with the embedding matrix."""
        return functional.linear(states, self.embedding.weight)

    def start(self, memory: Memory) -> DecoderState:
        """Returns the state before the first step: source, target position and recurrent state."""
        lengths = memory.valid.sum(dim=1)
        source = self.decoder.source(memory.states, lengths)
        state = {"annotations": source.annotations, "keys": source.keys, "source_lengths": lengths}
        recurrent = zip(self.state_names, self.decoder.start(memory.states), strict=True)
        return {**state, "positions": torch.zeros_like(lengths), **dict(recurrent)}

    def decode_step(self, token_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Reads one token per row [B] and returns the logits of the next one, float [B, V], and the next state."""
        embedded = self.embed(token_ids)
        source = EncodedSource.of(state["annotations"], state["keys"], state["source_lengths"])
        past = [state[name] for name in self.state_names]
        step = self.decoder.step(self.decoder.project(embedded), past, source, state["positions"], self.choose)
        present = dict(zip(self.state_names, step.present, strict=True))
        logits = self.project(self.dropout(self.decoder.readout(step.features, embedded)))
        return logits, {**state, "positions": state["positions"] + 1, **present}

    def attention_maps(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Returns the attention weights of every target position, float [B, 1, T, S]."""
        steps = self._unroll(self.embed(target_ids), self.encode(source_ids), self.choose)
        return torch.stack([step.weights for step in steps], dim=1)[:, None]

    def embed(self, ids: Tensor) -> Tensor:
        """Maps ids [...] to embeddings scaled by sqrt(D), [..., D].

        As in the Transformer: embeddings small enough for logits are too small for the gates.
        """
        embedded: Tensor = self.dropout(self.embedding(ids) * math.sqrt(self.config.d_model))
        return embedded

    def choose(self, weights: Tensor) -> Tensor:
        """Returns the weights [B, S] unchanged, or with hard attention all weight on the most probable position."""
        return most_probable(weights) if self.config.hard else weights

    def _unroll(self, embedded: Tensor, memory: Memory, choose: Choose) -> list[Step]:
        """Runs the decoder over embedded targets [B, T, D]. Computes all that needs no state before the loop."""
        inputs = self.decoder.project(embedded)
        source = self.decoder.source(memory.states, memory.valid.sum(dim=1))
        past = self.decoder.start(memory.states)
        steps = []
        for position in range(embedded.shape[1]):
            positions = torch.full_like(source.lengths, position)
            steps.append(self.decoder.step(inputs[:, position], past, source, positions, choose))
            past = steps[-1].present
        return steps

    def _readout(self, steps: Sequence[Step], embedded: Tensor) -> Tensor:
        """Returns the readouts of all steps at once, [B, T, D]."""
        features = torch.stack([step.features for step in steps], dim=1)
        states: Tensor = self.dropout(self.decoder.readout(features, embedded))
        return states

    def _initialize(self) -> None:
        """Initializes recurrent matrices orthogonally, a square per gate (Bahdanau et al. 2015, appendix B.1)."""
        width = self.config.d_model
        for name, parameter in self.named_parameters():
            if "weight_hh" in name or name.endswith("recurrent.weight"):
                for gate in parameter.data.chunk(3):
                    nn.init.orthogonal_(gate)
            elif parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)


def recurrent_names(config: RecurrentConfig) -> list[str]:
    """Returns the names of the recurrent state's parts: each layer's state, then Luong's attentional vector."""
    hidden = [f"hidden_{layer}" for layer in range(config.decoder_layers)]
    return hidden if config.attention == "additive" else [*hidden, "attentional"]
