"""`dragoman bench scheduling`: how the engines share their time out between requests that come together.

The tables of `docs/engine.md` are made by one call of it. Knows the options alone: what needs torch is imported when
the command runs, so that its lack can be explained.
"""

from benchmarks.harness.libraries import missing_library
from benchmarks.scheduling_options import SchedulingOptions

# What is imported when the command runs, and the extra of the project that brings it.
EXTRAS = {"torch": "export", "onnx": "export", "onnxscript": "export", "onnxruntime": "cpu"}


class BenchSchedulingCommand(SchedulingOptions):
    """Measures how the engines share their time out between requests that come together.

    modes: all sentences at once and some of them one at a time, in the modes throughput and latency. prefill: how long
    running rows stand still while a burst of sentences joins them, with each token budget, and what the budget costs.
    head-of-line: how much longer a short request takes beside others of maximum length. work-conservation: how many
    of the slots are taken while something waits, and how long a decoder stands still between two runs.

    A random model of a shape is measured, by default the base model of Vaswani et al. 2017, and with --run a trained
    one. Every part does its variants in turns, so many rounds. Writes a Markdown and a JSON file for each part into a
    folder. Run it on a quiet machine; it takes several minutes.
    """

    def cli_cmd(self) -> None:
        """Measures; prints and writes the tables."""
        problem = missing_library(EXTRAS)
        if problem is not None:
            raise SystemExit(f"dragoman bench scheduling: {problem}")
        from benchmarks.scheduling import benchmark  # noqa: PLC0415 - needs all of these

        benchmark(self)
