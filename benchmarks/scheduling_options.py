"""The options of `dragoman bench scheduling`: flags, environment variables and what they may be. Needs no torch."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from benchmarks.systems.compared_model import BASE, BASE_VOCABULARY_SIZE, MOST_TOKENS
from model.config import TransformerConfig
from serve.bundle.manifest import Precision

Part = Literal["modes", "prefill", "head-of-line", "work-conservation"]


class SchedulingOptions(BaseSettings):
    """All options; what is done with them, the command tells, which adds how it is called."""

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_BENCH_SCHEDULING_", frozen=True, extra="forbid", nested_model_default_partial_update=True
    )

    out: Path = Field(description="folder that gets a Markdown and a JSON file for each part")
    document: Path | None = Field(
        None, description="Markdown file whose places <!-- modes --> and so on get the tables of the parts"
    )
    parts: tuple[Part, ...] = Field(
        ("modes", "prefill", "head-of-line", "work-conservation"), min_length=1, description="what is measured"
    )
    run: Path | None = Field(
        None, description="training run or bundle in fp32, whose model is measured beside a random one"
    )
    data: str = Field("multi30k:en-de", description="test data, as `dragoman evaluate` takes them")
    random: TransformerConfig = Field(BASE, description="shape of the random model")
    vocabulary_size: int = Field(BASE_VOCABULARY_SIZE, gt=8, le=MOST_TOKENS, description="tokens of the random model")
    precision: Precision = Field("int8", description="what the models compute in")
    sentences: int | None = Field(None, gt=0, description="so many sentences of the data; default: all")
    rounds: int = Field(5, gt=0, description="how often everything is measured, in turns")
    slots: int = Field(32, ge=4, description="rows of each engine")
    alone: int = Field(50, gt=0, description="modes: sentences that are also translated one at a time")
    budgets: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (64, 128, 256, 512), min_length=1, description="prefill: token budgets that are compared"
    )
    bursts: int = Field(10, gt=0, description="prefill: bursts of sentences that meet running rows, in each round")
    neighbors: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (1, 4, 16), min_length=1, description="head-of-line: requests of maximum length beside a short one, by engine"
    )
    short_requests: int = Field(100, gt=1, description="head-of-line: short requests, one after the other, in a round")
    short_tokens: int = Field(5, gt=1, description="head-of-line: their source tokens, end token included, and target")
