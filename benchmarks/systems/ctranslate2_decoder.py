"""A CTranslate2 model as a decode loop, in its fastest setting on a CPU: a worker with one thread for each thread.

As a program it is the process of `benchmarks.harness.process`; `benchmarks.graphs` calls it for
translations. It imports no torch, whose memory would be counted.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import ctranslate2
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.process import Work, work
from benchmarks.systems.translating import draw_sources

END_PIECE = "</s>"
QUALITY_ROWS = 32


class CTranslate2Decoder:
    """A model that `benchmarks.systems.ctranslate2_model` has written."""

    def __init__(self, folder: str, threads: int, compute_type: str) -> None:
        self._pieces: list[str] = json.loads((Path(folder) / "shared_vocabulary.json").read_bytes())
        self._translator = ctranslate2.Translator(
            folder, device="cpu", compute_type=compute_type, inter_threads=threads, intra_threads=1
        )
        self._threads = threads

    def plan(self, *, seed: int, rows: int, source_tokens: int, target_tokens: int) -> Work:
        """Returns the work of decoding `rows` sources on each thread."""
        eos_id = self._pieces.index(END_PIECE)
        sources = self._to_pieces(
            draw_sources(seed, self._threads * rows, source_tokens, len(self._pieces), eos_id).tolist()
        )

        def decode(times: int) -> int:
            return sum(map(len, self._translate(sources * times, rows, target_tokens, target_tokens)))

        return decode

    def decode(self, sources: NDArray[np.int64], target_tokens: int) -> NDArray[np.int64]:
        """Returns exactly so many tokens for each source, int64 [R, target_tokens]; EOS is never chosen.

        Args:
            sources: int64 [R, S], each ending in EOS.
            target_tokens: how many.
        """
        pieces = self._translate(self._to_pieces(sources.tolist()), len(sources), target_tokens, target_tokens)
        return np.array(self._to_ids(pieces))

    def translate(self, sources: Sequence[Sequence[int]], limit: int) -> list[list[int]]:
        """Returns the translations, EOS excluded.

        Args:
            sources: ids, each ending in EOS.
            limit: the most tokens of a translation.
        """
        return self._to_ids(self._translate(self._to_pieces(sources), QUALITY_ROWS, 0, limit))

    def _translate(self, sources: list[list[str]], rows: int, shortest: int, longest: int) -> list[list[str]]:
        results = self._translator.translate_batch(
            sources,
            beam_size=1,
            max_batch_size=rows,
            min_decoding_length=shortest,
            max_decoding_length=longest,
            return_scores=False,
        )
        return [result.hypotheses[0] for result in results]

    def _to_pieces(self, sources: Sequence[Sequence[int]]) -> list[list[str]]:
        """Returns sources as CTranslate2 takes them, which adds the end itself."""
        return [[self._pieces[token_id] for token_id in source[:-1]] for source in sources]

    def _to_ids(self, targets: Sequence[Sequence[str]]) -> list[list[int]]:
        ids = {piece: token_id for token_id, piece in enumerate(self._pieces)}
        return [[ids[piece] for piece in target] for target in targets]


if __name__ == "__main__":
    work(CTranslate2Decoder)
