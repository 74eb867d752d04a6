"""The options of `dragoman bench online`: flags, environment variables and what they may be. Needs no torch."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from benchmarks.harness.affinity import Cpus
from benchmarks.online_results import PeerName
from serve.bundle.manifest import Precision


class OnlineOptions(BaseSettings):
    """All options; what is done with them, the command tells, which adds how it is called."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_BENCH_ONLINE_", frozen=True, extra="forbid")

    run: Path = Field(description="training run or bundle in fp32, whose model all servers serve")
    out: Path = Field(description="folder that gets online.md and online.json")
    document: Path | None = Field(None, description="Markdown file whose place <!-- online --> gets the tables")
    data: str = Field("multi30k:en-de", description="test data, as `dragoman evaluate` takes them: what is translated")
    precision: Precision = Field("int8-static", description="of all servers but PyTorch, which computes in fp32")
    peers: tuple[PeerName, ...] = Field(
        ("ctranslate2", "onnx", "pytorch"), min_length=1, description="what our server is measured beside"
    )
    searches: tuple[Literal["greedy", "beam 4"], ...] = Field(
        ("greedy", "beam 4"), min_length=1, description="how is searched"
    )
    server_cpus: Cpus = Field((0,), min_length=1, description="CPUs of every server")
    generator_cpus: Cpus = Field((1,), min_length=1, description="CPUs of what sends the load")
    processes: int = Field(1, ge=1, description="processes that send the load")
    windows_ms: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        (2.0, 5.0, 10.0), min_length=1, description="windows of peers that are tried, in milliseconds"
    )
    batch_size: int = Field(64, ge=1, description="requests that a peer computes together, at most")
    slots: int = Field(32, ge=4, description="rows of each of our engines")
    alone_seconds: float = Field(5.0, gt=0, description="how long one user asks one request after the other")
    trial_seconds: float = Field(6.0, gt=0, description="measured part of a trial of a rate, or of a setting")
    first_rate: float = Field(40.0, gt=0, description="requests per second of the first trial")
    tolerance: float = Field(0.1, gt=0, lt=1, description="how exactly capacities are searched")
    rounds: int = Field(3, ge=1, description="searches of every server, which take turns")
    max_lag_seconds: float = Field(0.02, gt=0, description="lag p99 of the generator that makes a trial void")
