"""The options of `dragoman bench service`: flags, environment variables and what they may be."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from benchmarks.harness.rounds import Cpus
from loadtest.scenario import SearchOptions
from serve.translation.fields import TargetRatio


class ServiceOptions(BaseSettings):
    """All options; what is done with them, the command tells, which adds how it is called."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_BENCH_SERVICE_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = Field(description="folder made by `dragoman export`: what is served")
    out: Path = Field(description="folder that gets service.md and service.json")
    document: Path | None = Field(None, description="Markdown file whose place <!-- service --> gets the tables")
    data: str | None = Field(
        None,
        description="test data, as `dragoman evaluate` takes them: what is translated. Default: the golden sentences "
        "of the bundle's first direction",
    )
    max_target_ratio: TargetRatio | None = Field(
        None,
        description="the longest translation that clients ask for, times the tokens of its source; for a model that "
        "was never trained and ends none by itself. Default: the model's limit",
    )
    sentences: int = Field(100, ge=1, description="so many of them are asked by one client, at most")
    words: int = Field(8, ge=1, description="many clients ask for those with at most so many words")
    clients: int = Field(64, ge=1, description="clients that keep the server busy, each waiting for its answers")
    rounds: int = Field(5, ge=1, description="in which every interface has its turn")
    seconds: float = Field(6.0, gt=0, description="measured part of a turn with many clients")
    warm_up_seconds: float = Field(2.0, gt=0, description="what goes before it")
    slots: int = Field(32, ge=1, description="rows of each engine")
    server_cpus: Cpus = Field((0,), min_length=1, description="CPUs of the server; it has an engine for each")
    generator_cpus: Cpus = Field((1,), min_length=1, description="CPUs of the clients")
    processes: int = Field(1, ge=1, description="processes that hold the many clients, each with one gRPC connection")

    @property
    def search_options(self) -> SearchOptions:
        """How all sentences are searched for: greedily."""
        return SearchOptions(max_target_ratio=self.max_target_ratio)
