"""The options of `dragoman bench replicas`: flags, environment variables and what they may be."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from benchmarks.harness.affinity import Cpus


class ReplicasOptions(BaseSettings):
    """All options; what is done with them, the command tells, which adds how it is called."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_BENCH_REPLICAS_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = Field(description="folder made by `dragoman export`: what is served")
    out: Path = Field(description="folder that gets replicas.md and replicas.json")
    document: Path | None = Field(None, description="Markdown file whose place <!-- replicas --> gets the table")
    data: str | None = Field(
        None,
        description="test data, as `dragoman evaluate` takes them: what is translated. Default: the golden sentences "
        "of the bundle's first direction",
    )
    replicas: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (1, 2, 3), min_length=1, description="numbers of replicas, ascending; the others are compared with the first"
    )
    clients: int = Field(120, ge=1, description="clients that keep the replicas busy, each waiting for its answers")
    rounds: int = Field(5, ge=1, description="in which every number of replicas has its turn")
    seconds: float = Field(10.0, gt=0, description="measured part of a turn")
    warm_up_seconds: float = Field(3.0, gt=0, description="what goes before it")
    slots: int = Field(
        60, ge=1, description="rows of all engines together; rounded down to what can be shared out evenly"
    )
    server_cpus: Cpus = Field((0, 1), min_length=1, description="CPUs that all replicas share; an engine for each")
    generator_cpus: Cpus = Field((0, 1), min_length=1, description="CPUs of the clients; may be those of the replicas")
    processes: int = Field(1, ge=1, description="processes that hold the clients")
    utilisation: float = Field(
        0.7, gt=0, le=1, description="share of the throughput at which servers are to run, for what sentences cost"
    )
    cpu_hour_price: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="of one CPU, in any currency. Default: only CPU-hours are told"
    )

    @field_validator("replicas")
    @classmethod
    def _check_order(cls, replicas: tuple[int, ...]) -> tuple[int, ...]:
        if list(replicas) != sorted(set(replicas)):
            raise ValueError("expected different numbers, ascending")
        return replicas
