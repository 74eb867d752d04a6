"""The options of `dragoman bench graphs`: flags, environment variables and what they may be. Needs no torch."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from benchmarks.graphs import SYSTEMS, SystemName
from benchmarks.systems.random_shape import BASE, BASE_VOCABULARY_SIZE, MOST_TOKENS
from model.config import TransformerConfig


class GraphOptions(BaseSettings):
    """All options; what is done with them, the command tells, which adds how it is called."""

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_BENCH_GRAPHS_", frozen=True, extra="forbid", nested_model_default_partial_update=True
    )

    out: Path = Field(description="folder that gets graphs.md and graphs.json")
    document: Path | None = Field(None, description="Markdown file whose place <!-- graphs --> gets the table")
    run: Path | None = Field(
        None, description="training run or bundle in fp32, whose model is measured beside a random one"
    )
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
