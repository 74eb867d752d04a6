"""A bundle as a decode loop: threads that share one session, each with a runtime of its own, as the engines have.

Decodes greedily, with the very runtime and search that serve, exactly so many tokens. No scheduler, no tokenizer: the
graphs alone are measured. As a program it is the process of `benchmarks.harness.process`; it imports no torch,
whose memory would be counted.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.process import Work, work
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
        """Returns the work of decoding `rows` sources on each thread."""
        manifest = self._manifest
        everything = len(self._runtimes) * rows
        sources = draw_sources(seed, everything, source_tokens, manifest.vocabulary_size, manifest.eos_id)

        def decode(times: int) -> int:
            return times * sum(decoded.size for decoded in self.decode(sources, target_tokens, times))

        return decode

    def decode(self, sources: NDArray[np.int64], target_tokens: int, times: int = 1) -> list[NDArray[np.int64]]:
        """Shares sources out among the threads and decodes them.

        Args:
            sources: int64 [threads * R, S], all of one length.
            target_tokens: how many tokens each row gets; EOS is never chosen.
            times: how often each thread does its part.

        Returns:
            For each thread the tokens of its last time, int64 [R, target_tokens].
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
            # What CTranslate2 does before the least length is reached: nothing ends early, in any system.
            logits[:, self._manifest.eos_id] = -np.inf
            token_ids = decoded[position] = greedy(logits)
            token_scores(runtime.log_probabilities(logits), token_ids)  # as the server needs them
        return decoded.T


if __name__ == "__main__":
    work(OnnxDecoder)
