"""The Transformer (Vaswani et al. 2017, arXiv:1706.03762) and its usual variants.

The defaults of `TransformerConfig` are the paper's.

Shapes: B rows, S source length, T target length, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dragoman.model.config import TransformerConfig
from dragoman.model.network.attention import KeysValues, Positions, causal_mask, padding_mask
from dragoman.model.network.layers import DecoderLayer, Dropout, EncoderLayer, Past, build_norm
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID

# The head of the last decoder layer that guided alignment trains.
GUIDED_HEAD = 0
# The decoder's state between steps, by name; the first axis of every tensor is the row.
DecoderState = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Memory:
    """The encoded source, states float [B, S, d_model]; `valid`, bool [B, S], is False at padding."""

    states: Tensor
    valid: Tensor


class Transformer(nn.Module):
    """Encoder, decoder and embeddings (Vaswani et al. 2017, figure 1). `pad_id` fills up shorter sources of a batch.

    With tied embeddings, one matrix embeds source and target and projects to the output (section 3.4; Press and Wolf
    2017, arXiv:1608.05859); else each has its own. A pre-norm stack ends with a normalization, because nothing else
    normalizes the sum of its residual connections (Xiong et al. 2020, arXiv:2002.04745, table 1).
    """

    def __init__(
        self,
        config: TransformerConfig,
        vocabulary_size: int,
        pad_id: int,
        *,
        bos_id: int = BOS_ID,
        eos_id: int = EOS_ID,
    ) -> None:
        super().__init__()
        self.config = self.limits = config
        self.vocabulary_size, self.pad_id, self.bos_id, self.eos_id = vocabulary_size, pad_id, bos_id, eos_id
        tied, width = config.tie_embeddings, config.d_model
        self.embedding = nn.Embedding(vocabulary_size, width)
        self.target_embedding = None if tied else nn.Embedding(vocabulary_size, width)
        self.output = None if tied else nn.Linear(width, vocabulary_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size)) if config.output_bias else None
        self.embedding_scale = math.sqrt(width) if config.scale_embeddings else 1.0
        self.embedding_dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder_norm, self.decoder_norm = (
            build_norm(config) if config.norm_position == "pre" else nn.Identity() for _ in range(2)
        )
        self.source_embedding_norm, self.target_embedding_norm = (
            build_norm(config) if config.norm_embeddings else nn.Identity() for _ in range(2)
        )
        self._initialize()
        # BOS takes one target position. Equal lengths on both sides let an export store the sinusoidal table once.
        length = max(config.max_source_tokens, config.max_target_tokens + 1)
        self.source_positions = Positions(config.positions, length, width)
        self.target_positions = Positions(config.positions, length, width)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.embedding.weight.device

    @property
    def encoder_layers(self) -> list[EncoderLayer]:
        """The layers of the encoder, first to last."""
        return cast("list[EncoderLayer]", list(self.encoder))

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        """The layers of the decoder, first to last."""
        return cast("list[DecoderLayer]", list(self.decoder))

    @property
    def source_weight(self) -> Tensor:
        """The embeddings of source tokens, [V, d_model]."""
        return self.embedding.weight

    @property
    def target_weight(self) -> Tensor:
        """The embeddings of target tokens, [V, d_model]."""
        return self.embedding.weight if self.target_embedding is None else self.target_embedding.weight

    @property
    def output_weight(self) -> Tensor:
        """The matrix that maps states to logits, [V, d_model]."""
        return self.embedding.weight if self.output is None else self.output.weight

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Returns the logits [B, T, V] of teacher forcing: row t predicts the token after target_ids[:, t].

        `source_ids`, int64 [B, S], are right-padded and end in EOS; `target_ids`, int64 [B, T], begin with BOS.
        """
        return self.project(self.decode(target_ids, self.encode(source_ids)))

    def encode(self, source_ids: Tensor) -> Memory:
        """Maps source ids [B, S] to the memory that the decoder attends to."""
        valid = source_ids != self.pad_id
        states = self.embed_source(source_ids)
        for layer in self.encoder_layers:
            states = layer(states, padding_mask(valid))
        return Memory(self.encoder_norm(states), valid)

    def decode(self, target_ids: Tensor, memory: Memory) -> Tensor:
        """Maps target ids [B, T] to the states [B, T, d_model] that predict the token after each of them.

        The target's padding needs no mask: it is on the right, hidden from valid positions by the causal mask.
        """
        return self._decode(target_ids, memory, ())[0]

    def decode_aligned(self, target_ids: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Returns the states of `decode`, and the cross-attention weights of the guided head, float [B, T, S].

        The guided head is the first one of the last layer, as in Marian (Junczys-Dowmunt et al. 2018).
        """
        decoded, weights = self._decode(target_ids, memory, self.decoder_layers[-1:])
        return decoded, weights[0][:, GUIDED_HEAD]

    def _decode(
        self, target_ids: Tensor, memory: Memory, weighted: Sequence[DecoderLayer]
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the states of `decode`, and the cross-attention weights of some layers, each float [B, H, T, S]."""
        source_mask = padding_mask(memory.valid)
        target_mask = causal_mask(target_ids.shape[1], target_ids.device)
        states = self.embed_target(target_ids, self.target_positions(target_ids.shape[1]))
        weights = []
        for layer in self.decoder_layers:
            source = layer.cross_attention.project(memory.states)
            states, _ = layer.attend_to_target(states, target_mask)
            if layer in weighted:
                weights.append(layer.weights_after_target(states, source, source_mask))
            states = layer.attend_to_source(states, source, source_mask)
        decoded: Tensor = self.decoder_norm(states)
        return decoded, weights

    def project(self, states: Tensor) -> Tensor:
        """Maps states [..., d_model] to logits [..., V]."""
        return functional.linear(states, self.output_weight, self.output_bias)

    def start(self, memory: Memory) -> DecoderState:
        """Returns the caches before the first step.

        `self_key_{l}` and `self_value_{l}` of decoder layer l are empty, [B, H, 0, D]; a recurrent layer has
        `self_state_{l}`, [B, d_model]. `cross_key_{l}` and `cross_value_{l}`, [B, H, S, D], are complete; no step
        replaces them, nor `source_valid`, bool [B, S]. `target_ids` are the tokens so far, int64 [B, T].
        """
        state = {"source_valid": memory.valid, "target_ids": memory.valid[:, :0].long()}
        for number, layer in enumerate(self.decoder_layers):
            state |= _to_state("self", number, layer.start(memory.states))
            state |= _to_state("cross", number, layer.cross_attention.project(memory.states))
        return state

    def decode_step(self, token_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Reads one token per row, int64 [B], BOS at first, without recomputing earlier positions.

        Returns the logits of the next one, float [B, V], equal to the last row of full recomputation, and the next
        caches. `state` comes from `start` or the previous step.
        """
        read = state["target_ids"]
        following = {**state, "target_ids": torch.cat((read, token_ids[:, None]), dim=1)}
        source_mask = padding_mask(state["source_valid"])
        states = self.embed_target(token_ids[:, None], self.target_positions(1, first=read.shape[1]))  # [B, 1, d_model]
        for number, layer in enumerate(self.decoder_layers):
            source, past = _from_state("cross", number, state), _from_state("self", number, state)
            states, target = layer(states, source, source_mask, None, past)
            following |= _to_state("self", number, target)
        return self.project(self.decoder_norm(states[:, 0])), following

    def attention_maps(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Returns the cross-attention weights, float [B, L * H, T, S], layer by layer, head by head."""
        _, weights = self._decode(target_ids, self.encode(source_ids), self.decoder_layers)
        return torch.cat(weights, dim=1)

    def embed_source(self, ids: Tensor) -> Tensor:
        """Maps source ids [B, S] to the encoder's input, [B, S, d_model]."""
        return self._embed(ids, self.source_weight, self.source_positions(ids.shape[1]), self.source_embedding_norm)

    def embed_target(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Maps target ids [...] and the vectors of their positions, [..., d_model], to the decoder's input."""
        return self._embed(ids, self.target_weight, positions, self.target_embedding_norm)

    def _embed(self, ids: Tensor, weight: Tensor, positions: Tensor, norm: nn.Module) -> Tensor:
        """Adds positions to scaled embeddings (section 3.4) and applies dropout (section 5.4)."""
        scaled = functional.embedding(ids, weight) * self.embedding_scale
        embedded: Tensor = self.embedding_dropout(norm(scaled + positions))
        return embedded

    def _initialize(self) -> None:
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        for embedding in (self.embedding, self.target_embedding):
            if embedding is not None:
                nn.init.normal_(embedding.weight, std=self.config.d_model**-0.5)


def _to_state(kind: str, layer: int, past: Past) -> DecoderState:
    if isinstance(past, Tensor):
        return {f"{kind}_state_{layer}": past}
    return {f"{kind}_key_{layer}": past.keys, f"{kind}_value_{layer}": past.values}


def _from_state(kind: str, layer: int, state: DecoderState) -> Past:
    if (cell := state.get(f"{kind}_state_{layer}")) is not None:
        return cell
    return KeysValues(state[f"{kind}_key_{layer}"], state[f"{kind}_value_{layer}"])
