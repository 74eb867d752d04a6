"""`dragoman bench offline`: how fast the engines translate a test set, beside rivals with the same weights.

The tables of `docs/benchmarks.md` are made by one call of it. Knows the options alone: what needs torch is imported
when the command runs, so that its lack can be explained.
"""

from benchmarks.harness.libraries import missing_library
from benchmarks.offline_options import OfflineOptions

# What is imported when the command runs, and the extra of the project that brings it.
EXTRAS = {"torch": "export", "onnx": "export", "onnxscript": "export", "onnxruntime": "cpu"}
# The same for what a peer needs besides.
PEER_EXTRAS: dict[str, dict[str, str]] = {
    "ctranslate2": {"ctranslate2": "peers"},
    "pytorch": {},
    "transformers": {"transformers": "peers"},
    "optimum": {"transformers": "peers"},
}


class BenchOfflineCommand(OfflineOptions):
    """Measures the engines beside rivals with the same weights, sentences and options: throughput, latency, memory.

    A random model of a shape is measured, by default the base model of Vaswani et al. 2017, and with --run a trained
    one. Each system is a process of its own and translates token ids to token ids, greedily and with a beam of 4: all
    sentences as fast as it can, then some of them one after the other. The random model never ends by itself: its
    translations get exactly the lengths of the references. In every round each system is started once and then takes
    its turn at each task. Figures are the median of the rounds; behind a rival's stands how many times that ours is:
    the median of the rounds' ratios, the smallest and the largest.

    Rivals that take batches get the best of --batches, and our engines the best of --slots; --trials passes of each
    come before the rounds. One sentence at a time is translated with each of --alone-threads, and the best counts, for
    every system. Writes offline.md and offline.json into a folder. Run it on a quiet machine; it takes hours.
    """

    def cli_cmd(self) -> None:
        """Measures; prints and writes the tables."""
        self._check_peers()
        from benchmarks.offline_benchmark import benchmark  # noqa: PLC0415 - needs the libraries

        benchmark(self)

    def _check_peers(self) -> None:
        needed = EXTRAS.copy()
        for peer in self.peers:
            needed |= PEER_EXTRAS[peer]
        problem = missing_library(needed)
        if problem is not None:
            raise SystemExit(f"dragoman bench offline: {problem}")
