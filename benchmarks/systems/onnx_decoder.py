"""A bundle as a decode loop: threads that share one session, each with its own runtime, as in the server.

It uses the server's runtime and greedy search, without scheduler and tokenizer. It imports no torch, whose memory would
be counted.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.process import Work
from benchmarks.systems.translating import draw_sources
from serve.bundle.bundle import Bundle
from serve.runtime.cpu import Runtime, Sessions
from serve.search.sampling import greedy, token_scores


class OnnxDecoder:
    """The graphs of a bundle."""

    def __init__(self, folder: str, threads: int, slots: int) -> None:
        bundle = Bundle.open(Path(folder))
        sessions = Sessions.load(bundle, threads=1)
        self._manifest = bundle.manifest
        self._runtimes = [Runtime(sessions, slots) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads)

    def plan(self, *, seed: int, rows: int, source_tokens: int, target_tokens: int) -> Work:
        """Prepares `rows` sources on each thread."""
        manifest = self._manifest
        everything = len(self._runtimes) * rows
        sources = draw_sources(seed, everything, source_tokens, manifest.vocabulary_size, manifest.eos_id)

        def decode(times: int) -> int:
            return times * sum(decoded.size for decoded in self.decode(sources, target_tokens, times))

        return decode

    def decode(self, sources: NDArray[np.int64], target_tokens: int, times: int = 1) -> list[NDArray[np.int64]]:
        """Divides sources of one length among the threads; each decodes its part `times` times, with EOS forbidden.

        Maps int64 [threads * R, S] to the last tokens of each thread, int64 [R, target_tokens].
        """

        def repeat(runtime: Runtime, part: NDArray[np.int64]) -> NDArray[np.int64]:
            for _ in range(times - 1):
                self._decode_part(runtime, part, target_tokens)
            return self._decode_part(runtime, part, target_tokens)

        return list(self._pool.map(repeat, self._runtimes, np.split(sources, len(self._runtimes))))

    def _decode_part(self, runtime: Runtime, sources: NDArray[np.int64], target_tokens: int) -> NDArray[np.int64]:
        rows, length = sources.shape
        lengths = np.full(rows, length, np.int32)
        runtime.encode(sources, lengths, np.arange(len(sources)))
        token_ids = np.full(rows, self._manifest.bos_id)
        decoded = np.empty((target_tokens, rows), np.int64)
        for position in range(target_tokens):
            logits = runtime.decode_step(token_ids, np.full(rows, position, np.int32), lengths)
            # Forbids EOS, as CTranslate2 does before the minimum length.
            logits[:, self._manifest.eos_id] = -np.inf
            token_ids = decoded[position] = greedy(logits)
            token_scores(runtime.log_probabilities(logits), token_ids)  # as the server needs them
        return decoded.T
