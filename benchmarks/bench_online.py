"""`dragoman bench online`: how many requests our server answers in time, beside servers that others would build.

Knows the options alone: what needs torch is imported when the command runs, so that its lack can be explained.
"""

from benchmarks.harness.libraries import missing_library
from benchmarks.online_options import OnlineOptions

EXTRAS = {"torch": "export", "onnx": "export", "onnxscript": "export", "onnxruntime": "cpu", "aiohttp": "bench"}


class BenchOnlineCommand(OnlineOptions):
    """Measures our server beside others under the same open-loop load: same weights, sentences, options and CPUs.

    The others are what one would build on a library that translates whole batches: a server of asyncio whose requests
    wait for company in a window of time. ctranslate2 computes its batches with its own workers; onnx computes with our
    graphs and search, but one whole batch after the other; pytorch with our model. Their windows and threads are the
    best of a trial, by the requests of sixteen users in a closed loop. All are asked over REST and run on
    --server-cpus, the generator on --generator-cpus.

    The objective is that the 99th percentile of the latency is at most three times the median of a lone request to the
    slower of our server and ctranslate2, and that nothing fails. The goodput is the highest Poisson rate that meets it;
    servers take turns, and of the rounds the median counts; behind a rival's stands how many times that ours is. Writes
    online.md and online.json into a folder. Run it on a quiet machine; it takes an hour.
    """

    def cli_cmd(self) -> None:
        """Measures; prints and writes the tables."""
        needed = EXTRAS | ({"ctranslate2": "peers"} if "ctranslate2" in self.peers else {})
        problem = missing_library(needed)
        if problem is not None:
            raise SystemExit(f"dragoman bench online: {problem}")
        from benchmarks.online import benchmark  # noqa: PLC0415 - needs the libraries

        benchmark(self)
