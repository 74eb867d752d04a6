"""The PyTorch models that a bundle is compared with: the trained model, and a copy rounded like an 8-bit graph.

The rounded copy computes in floats and rounds where the graph rounds. It is independent of
`export.graphs.quantized_layers`, which it verifies. Sums are exact in the graph and rounded here, and an activation
near a rounding boundary may fall to either side. The two therefore agree within rounding, not bit by bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from export.answer import Answer
from export.verify.stepper import References
from model.data.batches import pad
from model.network.transformer import Transformer
from model.network.translation_model import DecoderState, TranslationModel
from model.search import Generated, generate_beam, generate_greedy
from serve.bundle.manifest import EIGHT_BITS, ActivationRange, Manifest

LEVELS = 127  # on either side of zero
SMALLEST_MAXIMUM = 1e-12  # for a row of zeros; any positive scale works


def rounded(
    model: TranslationModel,
    activation_ranges: Mapping[str, ActivationRange],
    cache_ranges: Mapping[str, ActivationRange],
) -> Transformer:
    """Returns a copy of a Transformer with rounded weights, and rounded activations before every product.

    Ranges are by layer name. Activations without one use a scale per row; outputs without one are not rounded.

    Raises:
        TypeError: if the model is no Transformer, which has no 8-bit graphs.
    """
    if not isinstance(model, Transformer):
        raise TypeError(f"{type(model).__name__}: expected a Transformer")
    copy = deepcopy(model)
    products = {name: module for name, module in copy.named_modules() if isinstance(module, nn.Linear)}
    weights = (*(module.weight for module in products.values()), copy.source_weight, copy.target_weight)
    for weight in dict.fromkeys(weights):  # tied ones once
        weight.data = rounded_rows(weight.data)
    for name, module in products.items():
        known = activation_ranges.get(name)
        rounding = rounded_rows if known is None else partial(rounded_in, known)
        module.register_forward_pre_hook(partial(_round_input, rounding))
    for name, known in cache_ranges.items():
        products[name].register_forward_hook(partial(_round_cached, known))
    # The output projection is a function, not a module, so the hook rounds its input here.
    copy.decoder_norm.register_forward_hook(_round_output)
    return copy


def rounded_rows(values: Tensor) -> Tensor:
    """Rounds each row, float [..., D], to multiples of 1/127 of its largest magnitude."""
    scales = values.abs().amax(dim=-1, keepdim=True).clamp(min=SMALLEST_MAXIMUM) / LEVELS
    return (values / scales).round() * scales


def rounded_in(known: ActivationRange, values: Tensor) -> Tensor:
    """Rounds values to 256 levels of a range, aligned to zero; values outside are clipped."""
    distance = max(known.largest - known.smallest, SMALLEST_MAXIMUM) / (2 * LEVELS + 1)
    lowest = -round(-known.smallest / distance)
    return (values / distance).round().clamp(lowest, lowest + 2 * LEVELS + 1) * distance


def rounded_about_zero(known: ActivationRange, values: Tensor) -> Tensor:
    """Rounds values to 128 levels below zero and 127 above, symmetric to the range's largest magnitude."""
    distance = max(-known.smallest, known.largest, SMALLEST_MAXIMUM) / LEVELS
    return (values / distance).round().clamp(-LEVELS - 1, LEVELS) * distance


def _round_input(rounding: Callable[[Tensor], Tensor], _: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    return rounding(inputs[0])


def _round_cached(known: ActivationRange, _: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return rounded_about_zero(known, output)


def _round_output(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return rounded_rows(output)


BATCH_ROWS = 50


def references_of(model: TranslationModel, manifest: Manifest) -> References:
    """Returns the models to compare a bundle with."""
    if manifest.precision not in EIGHT_BITS:
        return References(Reference(model), None)
    return References(Reference(model), Reference(rounded(model, manifest.activation_ranges, manifest.cache_ranges)))


class Reference:
    """A `Translator` for a PyTorch model in evaluation mode."""

    def __init__(self, model: TranslationModel) -> None:
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
        return [
            Answer(generated.target_ids, generated.score)
            for generated in self._generate(sources, beam_size, length_penalty, advance)
        ]

    def _generate(
        self,
        sources: Sequence[tuple[int, ...]],
        beam_size: int,
        length_penalty: float,
        advance: Callable[[int], object],
    ) -> Iterator[Generated]:
        for start in range(0, len(sources), BATCH_ROWS):
            batch = sources[start : start + BATCH_ROWS]
            if beam_size == 1:
                yield from generate_greedy(self._model, batch)
            else:
                yield from generate_beam(self._model, batch, beam_size, length_penalty)
            advance(len(batch))
