"""`dragoman bench service`: what tokenizer, interfaces and the rest of the service cost beside the model itself.

Knows the options alone: what needs libraries is imported when the command runs, so that their lack can be explained.
"""

from benchmarks.harness.libraries import missing_library
from benchmarks.service_options import ServiceOptions

EXTRAS = {"onnxruntime": "cpu", "aiohttp": "bench", "hdrh": "bench"}


class BenchServiceCommand(ServiceOptions):
    """Measures what the service costs over its bare engine, in two ways.

    One client: every sentence is asked of the bare engine (scheduler, engine and runtime in this process, from token
    ids to token ids), of a server over gRPC and of the same server over REST, in turn; what counts is the difference of
    the times of one sentence. Many clients: a closed loop over gRPC, REST and TranslateMany keeps a server busy with
    short sentences; what counts is the share of its CPU time that is spent in runs of ONNX Runtime.

    All engines have one thread and search greedily. Servers and the bare engine run on --server-cpus, clients on
    --generator-cpus. Writes service.md and service.json into a folder. Run it on a quiet machine; it takes minutes.
    """

    def cli_cmd(self) -> None:
        """Measures; prints and writes the tables."""
        problem = missing_library(EXTRAS)
        if problem is not None:
            raise SystemExit(f"dragoman bench service: {problem}")
        from benchmarks.service import benchmark  # noqa: PLC0415 - needs the libraries

        benchmark(self)
