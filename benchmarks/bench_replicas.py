"""`dragoman bench replicas`: what one, two and three servers of a bundle do on the same CPUs.

Knows the options alone: what needs libraries is imported when the command runs, so that their lack can be explained.
"""

from benchmarks.harness.libraries import missing_library
from benchmarks.replicas_options import ReplicasOptions

EXTRAS = {"onnxruntime": "cpu", "aiohttp": "bench", "hdrh": "bench"}


class BenchReplicasCommand(ReplicasOptions):
    """Measures the throughput of several servers of one bundle on the same CPUs, and what a million sentences cost.

    In every round each number of replicas has its turn: they are started on --server-cpus, get ready, and many clients
    over gRPC keep them busy, taking turns among them as the published service config says. It is a closed loop: each
    client waits for its answer and asks again at once, so that it tells throughput and no latency.

    There are as many engines of one thread as CPUs, whatever the number of replicas, if it divides that of the CPUs;
    otherwise the table tells how many there were. The slots are the same in all. Writes replicas.md and replicas.json
    into a folder. Run it on a quiet machine; it takes minutes.
    """

    def cli_cmd(self) -> None:
        """Measures; prints and writes the table."""
        problem = missing_library(EXTRAS)
        if problem is not None:
            raise SystemExit(f"dragoman bench replicas: {problem}")
        from benchmarks.replicas_benchmark import benchmark  # noqa: PLC0415 - needs the libraries

        benchmark(self)
