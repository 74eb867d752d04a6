"""`dragoman bench graphs`: how large, fast and good exported graphs are, beside CTranslate2 with the same weights.

The tables of `docs/export.md` are made by one call of it. Knows the options alone: what needs torch is imported when
the command runs, so that its lack can be explained.
"""

from benchmarks.graph_options import GraphOptions
from benchmarks.graphs import SYSTEMS, CTranslate2System
from benchmarks.harness.libraries import missing_library

# What is imported when the command runs, and the extra of the project that brings it.
EXTRAS = {
    "torch": "export",
    "onnx": "export",
    "onnxscript": "export",
    "onnxruntime": "cpu",
    "sacrebleu": "train",
    "ctranslate2": "peers",
}


class BenchGraphsCommand(GraphOptions):
    """Measures exported graphs beside CTranslate2 with the same weights: size, load time, memory, speed, BLEU.

    A random model of a shape is measured, by default the base model of Vaswani et al. 2017, and with --run a trained
    one. Each system is a process of its own with one ONNX Runtime session or one CTranslate2 translator, and decodes
    the same sources greedily to targets of the same length, on each thread so many rows at a time. In every round each
    system is started once and then takes its turn at each number of rows. Tokens per second are the median of the
    rounds; behind it stands how many times the speed of CTranslate2 in the same precision that is: the median of the
    rounds' ratios, the smallest and the largest.

    Writes graphs.md and graphs.json into a folder. Run it on a quiet machine with as many CPUs as threads; it takes
    many minutes.
    """

    def cli_cmd(self) -> None:
        """Measures; prints and writes the tables."""
        if self.quality is not None and self.run is None:
            raise SystemExit("dragoman bench graphs: quality: expected --run as well: a random model has none")
        self._check_libraries()
        from benchmarks.graph_benchmark import benchmark  # noqa: PLC0415 - needs all of these

        benchmark(self)

    def _check_libraries(self) -> None:
        peers = any(isinstance(SYSTEMS[name], CTranslate2System) for name in self.systems)
        problem = missing_library({name: extra for name, extra in EXTRAS.items() if peers or extra != "peers"})
        if problem is not None:
            raise SystemExit(f"dragoman bench graphs: {problem}")
