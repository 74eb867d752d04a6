"""A CTranslate2 model as a translator, which sorts and batches by itself.

As a program it is the process of `benchmarks.harness.process`; it imports no torch, whose memory would be
counted.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2

from benchmarks.systems.translating import LENGTH_PENALTY, Batching, SourceSentence, groups, take_turns


class CTranslate2Translator:
    """A model that `benchmarks.systems.ctranslate2_model` has written."""

    def __init__(self, folder: str, copies: int, threads: int, compute_type: str) -> None:
        """Loads the model.

        Args:
            folder: of the model.
            copies: batches that are translated side by side.
            threads: of each of them.
            compute_type: as CTranslate2 names it.
        """
        self._pieces: list[str] = json.loads((Path(folder) / "shared_vocabulary.json").read_bytes())
        self._ids = {piece: token_id for token_id, piece in enumerate(self._pieces)}
        self._translator = ctranslate2.Translator(
            folder,
            device="cpu",
            compute_type=compute_type,
            inter_threads=copies,
            intra_threads=threads,
            max_queued_batches=-1,  # no bound: all groups are there at once
        )

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence; all groups are in its queue before the first result is read."""
        pending: list[tuple[int, Any]] = []
        for group in groups(sentences):
            shortest, longest = sentences[group[0]].limits
            results = self._translator.translate_batch(
                [self._to_pieces(sentences[number].source_ids) for number in group],
                max_batch_size=batching.size,
                batch_type=batching.unit,
                asynchronous=True,
                beam_size=beam_size,
                length_penalty=LENGTH_PENALTY,
                min_decoding_length=shortest,
                max_decoding_length=longest,
                return_scores=False,
            )
            pending += zip(group, results, strict=True)
        targets: dict[int, Sequence[int]] = {
            number: [self._ids[piece] for piece in result.result().hypotheses[0]] for number, result in pending
        }
        return [targets[number] for number in range(len(sentences))]

    def _to_pieces(self, source_ids: Sequence[int]) -> list[str]:
        """Returns a source as CTranslate2 takes it, which adds the end itself."""
        return [self._pieces[token_id] for token_id in source_ids[:-1]]


if __name__ == "__main__":
    take_turns(CTranslate2Translator)
