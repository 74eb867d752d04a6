"""The PyTorch models that a bundle is compared with: the trained model, and a copy rounded like an 8-bit graph.

The rounded copy computes in floats and rounds where the graph rounds. It is independent of the graphs, which it
verifies. Sums are exact in the graph and rounded here, and an activation near a rounding boundary may fall to either
side. The two therefore agree within rounding, not bit by bit.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dragoman.export.answer import Answer
from dragoman.model.data.batches import pad
from dragoman.model.network.attention import KeysValues, MultiHeadAttention, attention_weights
from dragoman.model.network.transformer import DecoderState, Transformer
from dragoman.model.search import generate
from dragoman.serve.bundle.manifest import Manifest

LEVELS = 127  # on either side of zero
UNSIGNED_LEVELS = 255
MIN_MAGNITUDE = 1e-12  # for a row of zeros; any positive scale works


def rounded(model: Transformer) -> Transformer:
    """Returns a copy with rounded weights and activations, and `RoundedAttention`."""
    copy = deepcopy(model)
    products = [module for module in copy.modules() if isinstance(module, nn.Linear)]
    weights = (*(module.weight for module in products), copy.source_weight, copy.target_weight)
    for weight in dict.fromkeys(weights):  # tied ones once
        weight.data = rounded_rows(weight.data)
    for module in products:
        module.register_forward_pre_hook(lambda _, inputs: rounded_rows(inputs[0]))
    # The output projection is a function, not a module, so the hook rounds its input here.
    copy.decoder_norm.register_forward_hook(lambda _, __, output: rounded_rows(output))
    for layer in copy.decoder_layers:
        if not layer.is_recurrent:
            layer.self_attention = RoundedAttention(layer.self_attention)
        layer.cross_attention = RoundedAttention(layer.cross_attention)
    return copy


class RoundedAttention(MultiHeadAttention):
    """Attention with rounded queries, keys and values, one scale per position and head, and with rounded weights."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__(attention.query.in_features, attention.heads)
        self.query, self.key, self.value, self.output = (
            attention.query,
            attention.key,
            attention.value,
            attention.output,
        )

    def forward(self, queries: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """Rounds a weight times the scale of its value to 256 levels of the largest such product of a head."""
        values = rounded_rows(memory.values)
        scales = values.abs().amax(dim=-1).clamp(min=MIN_MAGNITUDE)[:, :, None]  # [B, H, 1, S]
        products = self.weights(queries, memory, mask) * scales  # [B, H, T, S]
        level = products.amax(dim=-1, keepdim=True) / UNSIGNED_LEVELS
        heads = (products / level).round() * level / scales @ values  # [B, H, T, D]
        projected: Tensor = self.output(heads.transpose(1, 2).flatten(start_dim=2))
        return projected

    def weights(self, queries: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """Returns the weights before they are rounded."""
        return attention_weights(rounded_rows(self.split_heads(self.query(queries))), rounded_rows(memory.keys), mask)


def rounded_rows(values: Tensor) -> Tensor:
    """Rounds each row, float [..., D], to multiples of 1/127 of its largest magnitude."""
    scales = values.abs().amax(dim=-1, keepdim=True).clamp(min=MIN_MAGNITUDE) / LEVELS
    return (values / scales).round() * scales


BATCH_ROWS = 50


class References(NamedTuple):
    """The PyTorch model of a bundle, and the one rounded like its graphs; None if they do not round."""

    trained: "Reference"
    rounded: "Reference | None"


def references_of(model: Transformer, manifest: Manifest) -> References:
    """Returns the models to compare a bundle with."""
    if manifest.precision != "int8":
        return References(Reference(model), None)
    return References(Reference(model), Reference(rounded(model)))


class Reference:
    """A PyTorch model in evaluation mode, with the state of one batch. B rows, V vocabulary."""

    def __init__(self, model: Transformer) -> None:
        self.bos_id = model.bos_id
        self.max_target_tokens = model.limits.max_target_tokens
        self._model = model
        self._state: DecoderState = {}

    @torch.inference_mode()
    def start(self, sources: Sequence[tuple[int, ...]]) -> None:
        """Encodes B sources; discards the previous ones."""
        self._state = self._model.start(self._model.encode(pad(sources, self._model.pad_id)))

    @torch.inference_mode()
    def step(self, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Reads the last token of each row, int64 [B]; returns logits, float32 [B, V]."""
        logits, self._state = self._model.decode_step(torch.from_numpy(token_ids), self._state)
        array: NDArray[np.float32] = logits.numpy()
        return array

    def translate(
        self,
        sources: Sequence[tuple[int, ...]],
        beam_size: int,
        length_penalty: float,
        advance: Callable[[int], object],
    ) -> list[Answer]:
        """Returns the best translation of each source; beam size 1 is greedy search."""
        answers = list[Answer]()
        for start in range(0, len(sources), BATCH_ROWS):
            batch = sources[start : start + BATCH_ROWS]
            generated = generate(self._model, batch, beam_size, length_penalty)
            answers += [Answer(item.target_ids, item.score) for item in generated]
            advance(len(batch))
        return answers
