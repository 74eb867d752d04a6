"""`dragoman bench graphs`: how large, fast and good exported graphs are, beside CTranslate2 with the same weights.

The tables of `docs/export.md` are made by one call of it. Knows the options alone: what needs torch is imported when
the command runs, so that its lack can be explained.
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from loadtest.graph_systems import SYSTEMS, CTranslate2System, SystemName
from loadtest.libraries import missing_library
from loadtest.random_shape import BASE, BASE_VOCABULARY_SIZE, MOST_TOKENS
from model.config import TransformerConfig

# What is imported when the command runs, and the extra of the project that brings it.
EXTRAS = {
    "torch": "export",
    "onnx": "export",
    "onnxscript": "export",
    "onnxruntime": "cpu",
    "sacrebleu": "train",
    "ctranslate2": "peers",
}


class BenchGraphsCommand(BaseSettings):
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

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_BENCH_GRAPHS_", frozen=True, extra="forbid", nested_model_default_partial_update=True
    )

    out: Path = Field(description="folder that gets graphs.md and graphs.json")
    document: Path | None = Field(None, description="Markdown file whose place <!-- graphs --> gets the table")
    run: Path | None = Field(None, description="folder of a training run, which is measured besides the random model")
    quality: str | None = Field(
        None, description="test data, as `dragoman evaluate` takes them: measures BLEU of the trained model's systems"
    )
    random: TransformerConfig = Field(BASE, description="shape of the random model")
    vocabulary_size: int = Field(BASE_VOCABULARY_SIZE, gt=8, le=MOST_TOKENS, description="tokens of the random model")
    systems: tuple[SystemName, ...] = Field(tuple(SYSTEMS), min_length=1, description="which systems are measured")
    rows: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (1, 8, 32, 128), min_length=1, description="sources that each thread decodes at a time"
    )
    threads: int = Field(2, gt=0, description="threads of each system, each with batches of its own")
    source_tokens: int = Field(20, gt=1, description="length of each source, end token included")
    target_tokens: int = Field(32, gt=0, description="length of each target")
    rounds: int = Field(5, gt=0, description="turns of each system at each number of rows")
    turn_seconds: float = Field(1.0, ge=0, description="a turn repeats its batches for about so long")

    def cli_cmd(self) -> None:
        """Measures; prints and writes the tables."""
        if self.quality is not None and self.run is None:
            raise SystemExit("dragoman bench graphs: quality: expected --run as well: a random model has none")
        self._check_libraries()
        from loadtest.graph_benchmark import benchmark  # noqa: PLC0415 - needs all of these

        benchmark(self)

    def _check_libraries(self) -> None:
        peers = any(isinstance(SYSTEMS[name], CTranslate2System) for name in self.systems)
        problem = missing_library({name: extra for name, extra in EXTRAS.items() if peers or extra != "peers"})
        if problem is not None:
            raise SystemExit(f"dragoman bench graphs: {problem}")
