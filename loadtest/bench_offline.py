"""`dragoman bench offline`: how fast the engines translate a test set, beside rivals with the same weights.

The tables of `docs/benchmarks.md` are made by one call of it. Knows the options alone: what needs torch is imported
when the command runs, so that its lack can be explained.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from loadtest.batching import PATTERN
from loadtest.libraries import missing_library
from loadtest.random_shape import BASE, BASE_VOCABULARY_SIZE, MOST_TOKENS
from model.config import TransformerConfig

# What is imported when the command runs, and the extra of the project that brings it.
EXTRAS = {"torch": "export", "onnx": "export", "onnxscript": "export", "onnxruntime": "cpu"}
# The same for what a peer needs besides.
PEER_EXTRAS = {"ctranslate2": {"ctranslate2": "peers"}, "pytorch": {}, "transformers": {"transformers": "peers"}}
BATCHES = ("16:examples", "32:examples", "64:examples", "128:examples", "512:tokens", "2048:tokens")


class BenchOfflineCommand(BaseSettings):
    """Measures the engines beside rivals with the same weights, sentences and options: throughput, latency, memory.

    A random model of a shape is measured, by default the base model of Vaswani et al. 2017, and with --run a trained
    one. Each system is a process of its own and translates token ids to token ids, greedily and with a beam of 4: all
    sentences as fast as it can, then some of them one after the other. The random model never ends by itself: its
    translations get exactly the lengths of the references. In every round each system is started once and then takes
    its turn at each task. Figures are the median of the rounds; behind a rival's stands how many times that ours is:
    the median of the rounds' ratios, the smallest and the largest.

    Rivals that take batches get the best of --batches; a trial of each comes before the rounds. One sentence at a time
    is translated with each of --alone-threads, and the best counts, for every system. Writes offline.md and
    offline.json into a folder. Run it on a quiet machine; it takes an hour.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_BENCH_OFFLINE_", frozen=True, extra="forbid", nested_model_default_partial_update=True
    )

    out: Path = Field(description="folder that gets offline.md and offline.json")
    document: Path | None = Field(None, description="Markdown file whose place <!-- offline --> gets the tables")
    run: Path | None = Field(None, description="folder of a training run, which is measured besides the random model")
    data: str = Field("multi30k:en-de", description="test data, as `dragoman evaluate` takes them")
    random: TransformerConfig = Field(BASE, description="shape of the random model")
    vocabulary_size: int = Field(BASE_VOCABULARY_SIZE, gt=8, le=MOST_TOKENS, description="tokens of the random model")
    peers: tuple[Literal["ctranslate2", "pytorch", "transformers", "optimum"], ...] = Field(
        ("ctranslate2", "pytorch", "transformers"), description="what the engines are measured beside"
    )
    sentences: int | None = Field(None, gt=0, description="so many sentences of the data; default: all")
    alone: int = Field(50, gt=0, description="so many of them are also translated one at a time")
    rounds: int = Field(5, gt=0, description="turns of each system at each task")
    batches: tuple[Annotated[str, Field(pattern=PATTERN)], ...] = Field(
        BATCHES, min_length=1, description="batches that are tried, as in 64:examples or 1024:tokens"
    )
    engines: int | None = Field(
        None, gt=0, description="our engines; default: one for each CPU; rivals get as many threads as all engines"
    )
    threads: int = Field(1, gt=0, description="threads of each of our engines")
    slots: int = Field(32, ge=4, description="rows of each of our engines")
    alone_threads: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (1, 2), min_length=1, description="threads that are tried for one sentence at a time"
    )

    def cli_cmd(self) -> None:
        """Measures; prints and writes the tables."""
        self._check_peers()
        from loadtest.offline_benchmark import benchmark  # noqa: PLC0415 - needs the libraries

        benchmark(self)

    def _check_peers(self) -> None:
        if "optimum" in self.peers:
            raise SystemExit(
                "dragoman bench offline: peers: optimum: cannot be installed beside the others: optimum-onnx needs"
                " transformers before 4.58, the extra `peers` is tested with 5"
            )
        needed = EXTRAS.copy()
        for peer in self.peers:
            needed |= PEER_EXTRAS[peer]
        problem = missing_library(needed)
        if problem is not None:
            raise SystemExit(f"dragoman bench offline: {problem}")
