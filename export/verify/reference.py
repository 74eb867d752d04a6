"""The PyTorch model that a bundle was made from: how it translates, and its logits step by step.

With `export.verify.rounding` the only module of verification that needs torch: who has no training run verifies
without it.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from export.verify.answer import Answer
from export.verify.rounding import rounded
from export.verify.stepper import References
from model.data.batches import pad
from model.generate import Generated, generate_beam, generate_greedy
from model.network.translation_model import DecoderState, TranslationModel
from serve.bundle.manifest import EIGHT_BITS, Manifest

BATCH_ROWS = 50


def references_of(model: TranslationModel, manifest: Manifest) -> References:
    """Returns what the bundle of a manifest is compared with."""
    if manifest.precision not in EIGHT_BITS:
        return References(Reference(model), None)
    return References(Reference(model), Reference(rounded(model, manifest.activation_ranges, manifest.cache_ranges)))


class Reference:
    """A PyTorch model in evaluation mode; steps as `export.verify.stepper` says."""

    def __init__(self, model: TranslationModel) -> None:
        self.bos_id = model.bos_id
        self.max_target_tokens = model.limits.max_target_tokens
        self._model = model
        self._state: DecoderState = {}

    @torch.inference_mode()
    def start(self, sources: Sequence[tuple[int, ...]]) -> None:
        """Reads B sources, and forgets those before."""
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
        """Returns the best translation of each source, by greedy search if the beam is 1 wide."""
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
