"""The options of `dragoman bench offline`: flags, environment variables and what they may be. Needs no torch."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from benchmarks.systems.batching import PATTERN
from benchmarks.systems.random_shape import BASE, BASE_VOCABULARY_SIZE, MOST_TOKENS
from model.config import TransformerConfig

CpuPrecision = Literal["fp32", "int8", "int8-static"]
BATCHES = ("16:examples", "32:examples", "64:examples", "128:examples", "512:tokens", "2048:tokens")


class OfflineOptions(BaseSettings):
    """All options; what is done with them, the command tells, which adds how it is called."""

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_BENCH_OFFLINE_", frozen=True, extra="forbid", nested_model_default_partial_update=True
    )

    out: Path = Field(description="folder that gets offline.md and offline.json")
    document: Path | None = Field(None, description="Markdown file whose place <!-- offline --> gets the tables")
    run: Path | None = Field(
        None, description="training run or bundle in fp32, whose model is measured beside a random one"
    )
    data: str = Field("multi30k:en-de", description="test data, as `dragoman evaluate` takes them")
    random: TransformerConfig = Field(BASE, description="shape of the random model")
    vocabulary_size: int = Field(BASE_VOCABULARY_SIZE, gt=8, le=MOST_TOKENS, description="tokens of the random model")
    peers: tuple[Literal["ctranslate2", "pytorch", "transformers", "optimum"], ...] = Field(
        ("ctranslate2", "pytorch", "transformers"), description="what the engines are measured beside"
    )
    optimum_python: Path = Field(
        Path(".venv-optimum/bin/python"),
        description="interpreter of the environment of the peer optimum, which `make optimum` makes",
    )
    precisions: tuple[CpuPrecision, ...] = Field(
        ("fp32", "int8", "int8-static"),
        min_length=1,
        description="of the engines; the others get the nearest they have",
    )
    sentences: int | None = Field(None, gt=0, description="so many sentences of the data; default: all")
    trials: int = Field(
        2,
        gt=0,
        description="passes of each size of --batches and --slots, if several, before the rounds; the fastest counts",
    )
    alone: int = Field(50, gt=0, description="so many of them are also translated one at a time")
    rounds: int = Field(5, gt=0, description="turns of each system at each task")
    batches: tuple[Annotated[str, Field(pattern=PATTERN)], ...] = Field(
        BATCHES, min_length=1, description="batches of the others that are tried, as in 64:examples or 1024:tokens"
    )
    engines: int | None = Field(
        None, gt=0, description="our engines; default: one for each CPU; rivals get as many threads as all engines"
    )
    threads: int = Field(1, gt=0, description="threads of each of our engines")
    slots: tuple[Annotated[int, Field(ge=4)], ...] = Field(
        (32, 64, 128), min_length=1, description="rows of each of our engines that are tried"
    )
    alone_threads: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (1, 2), min_length=1, description="threads that are tried for one sentence at a time"
    )
