"""A model that has the `generate` of Hugging Face's `transformers`, as a translator of static batches.

Called by `benchmarks.systems.transformers_translator` and `benchmarks.systems.optimum_translator`, which load such
models.
"""

from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.systems.translating import LENGTH_PENALTY, Batching, SourceSentence, batches
from model.data.batches import pad


class GenerateTranslator:
    """Translates with `generate`."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence."""
        targets: dict[int, Sequence[int]] = {}
        for batch in batches(sentences, batching):
            sources = [sentences[number].source_ids for number in batch]
            answers = self._generate(sources, beam_size, *sentences[batch[0]].limits)
            targets |= dict(zip(batch, answers, strict=True))
        return [targets[number] for number in range(len(sentences))]

    @torch.inference_mode()
    def _generate(
        self, sources: Sequence[Sequence[int]], beam_size: int, shortest: int, longest: int
    ) -> list[list[int]]:
        config = self._model.config
        source_ids = pad(sources, config.pad_token_id)
        # With these a beam stops when as many hypotheses are finished, as it does in the other systems.
        beam: dict[str, Any] = {"early_stopping": True, "length_penalty": LENGTH_PENALTY} if beam_size > 1 else {}
        found = self._model.generate(
            input_ids=source_ids,
            attention_mask=source_ids != config.pad_token_id,
            num_beams=beam_size,
            min_new_tokens=shortest,
            max_new_tokens=longest,
            do_sample=False,
            **beam,
        )
        return [self._until_end(row) for row in found[:, 1:].tolist()]

    def _until_end(self, row: list[int]) -> list[int]:
        ends = {self._model.config.eos_token_id, self._model.config.pad_token_id}
        return row[: next((place for place, token_id in enumerate(row) if token_id in ends), len(row))]
