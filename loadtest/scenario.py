"""What a load consists of: phases one after the other, and kinds of requests mixed by weight. Written as YAML.

Every field is described here and nowhere else; unknown ones are refused by name. Times are drawn by
`loadtest.arrivals`, requests by `loadtest.plan`.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from loadtest.arrivals import (
    Arrivals,
    burst_arrivals,
    constant_arrivals,
    poisson_arrivals,
    ramp_arrivals,
    replayed_arrivals,
)
from loadtest.recorded_traffic import TracedRequest, read_trace
from loadtest.request import Protocol
from loadtest.search_options import SearchOptions

MAX_RATE = 100_000.0
Rate = Annotated[float, Field(gt=0, le=MAX_RATE, description="Requests per second, on average.")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ScenarioError(Exception):
    """A scenario, or a file that it names, cannot be used; the message names the place and what was expected."""


class _Part(BaseModel):
    """A part of a scenario: it holds what it declares and nothing else."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Phase(_Part):
    """A time with arrivals of one sort."""

    name: str = Field("load", min_length=1, description="In reports.")

    def draw(self, duration_seconds: float, seed: int) -> Arrivals:
        """Returns when requests are sent, in seconds from the start of the phase."""
        raise NotImplementedError


class TimedPhase(Phase):
    """A phase that lasts as long as one likes, and begins with a rate."""

    duration_seconds: Seconds = Field(30.0, description="Length of the phase.")
    rate: Rate = 20.0


class PoissonPhase(TimedPhase):
    """Requests of many independent users: a Poisson process."""

    arrivals: Literal["poisson"]

    def draw(self, duration_seconds: float, seed: int) -> Arrivals:
        """Returns the arrivals of so many seconds."""
        return poisson_arrivals(self.rate, duration_seconds, seed)


class ConstantPhase(TimedPhase):
    """Requests at equal distances."""

    arrivals: Literal["constant"]

    def draw(self, duration_seconds: float, seed: int) -> Arrivals:  # noqa: ARG002 - nothing is drawn
        """Returns the arrivals of so many seconds."""
        return constant_arrivals(self.rate, duration_seconds)


class BurstPhase(TimedPhase):
    """A Poisson process whose rate jumps to a peak and back."""

    arrivals: Literal["burst"]
    rate: Rate = Field(20.0, description="Requests per second between bursts, on average.")
    peak_rate: Rate = Field(100.0, description="Requests per second in a burst, on average.")
    every_seconds: Seconds = Field(10.0, description="From the beginning of a burst to that of the next.")
    burst_seconds: Seconds = Field(1.0, description="Length of a burst.")

    @model_validator(mode="after")
    def _check_burst(self) -> Self:
        if self.burst_seconds > self.every_seconds:
            raise ValueError(f"burst_seconds: {self.burst_seconds}, expected at most every_seconds")
        return self

    def draw(self, duration_seconds: float, seed: int) -> Arrivals:
        """Returns the arrivals of so many seconds."""
        return burst_arrivals(
            self.rate,
            self.peak_rate,
            duration_seconds,
            seed,
            every_seconds=self.every_seconds,
            burst_seconds=self.burst_seconds,
        )


class RampPhase(TimedPhase):
    """A Poisson process whose rate changes evenly."""

    arrivals: Literal["ramp"]
    rate: Rate = Field(20.0, description="Requests per second at the start, on average.")
    last_rate: Rate = Field(100.0, description="Requests per second at the end, on average.")

    def draw(self, duration_seconds: float, seed: int) -> Arrivals:
        """Returns the arrivals of so many seconds."""
        return ramp_arrivals(self.rate, self.last_rate, duration_seconds, seed)


class ReplayPhase(Phase):
    """Requests at the times of a recorded trace."""

    arrivals: Literal["replay"]
    trace: Path = Field(description="File with a request on each line; in a scenario, relative to it.")
    speed: float = Field(1.0, gt=0, allow_inf_nan=False, description="How many times as fast as it was recorded.")

    def read(self) -> list[TracedRequest]:
        """Returns the recorded requests.

        Raises:
            ScenarioError: if the trace cannot be read.
        """
        try:
            return read_trace(self.trace)
        except (OSError, ValueError) as error:
            raise ScenarioError(f"trace: {self.trace}: {error}") from error

    def draw(self, duration_seconds: float, seed: int) -> Arrivals:  # noqa: ARG002 - nothing is drawn
        """Returns the recorded times."""
        return replayed_arrivals([request.seconds for request in self.read()], self.speed)


AnyPhase = Annotated[
    PoissonPhase | ConstantPhase | BurstPhase | RampPhase | ReplayPhase, Field(discriminator="arrivals")
]


class RequestKind(_Part):
    """Requests of one kind."""

    name: str = Field("requests", min_length=1, description="In reports.")
    weight: float = Field(1.0, gt=0, allow_inf_nan=False, description="Share of the requests, relative to the others.")
    protocol: Protocol = Field("grpc", description="How they travel.")
    texts: dict[Annotated[int, Field(ge=1)], Annotated[float, Field(gt=0)]] = Field(
        {1: 1.0}, min_length=1, description="Weights of numbers of texts, as in {1: 3, 8: 1}."
    )
    text: str | None = Field(None, description="The text of all of them. Default: sentences are drawn.")
    source_language: str = Field("", description="ISO 639-1 code of the sentences.")
    target_language: str = Field("", description="ISO 639-1 code of the translations.")
    options: SearchOptions = Field(SearchOptions(), description="How is searched.")
    timeout_seconds: float = Field(10.0, gt=0, le=3600, description="How long a request waits for its answer.")
    cancelled_share: float = Field(0.0, ge=0, le=1, description="Share of the requests whose client goes away.")
    cancelled_within_seconds: Seconds = Field(0.5, description="It goes at a random time until then.")


class Scenario(_Part):
    """A load."""

    sentences: Path | None = Field(
        None, description="UTF-8 file, a sentence per line; relative to the scenario. Default: ten built-in ones."
    )
    warm_up_seconds: float = Field(3.0, ge=0, allow_inf_nan=False, description="Load before the first phase.")
    requests: tuple[RequestKind, ...] = Field((RequestKind(),), min_length=1, description="Kinds of requests.")
    phases: tuple[AnyPhase, ...] = Field(min_length=1, description="One after the other.")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for field, names in {
            "requests": [kind.name for kind in self.requests],
            "phases": [phase.name for phase in self.phases],
        }.items():
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ValueError(f"{field}: name: {twice!r} twice, expected different names")
        return self


def read_scenario(path: Path) -> Scenario:
    """Returns the scenario of a YAML file; the paths in it are relative to its folder.

    Raises:
        ScenarioError: naming each field that is wrong or unknown.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        scenario = Scenario.model_validate(content)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ScenarioError(f"{path}: {'; '.join(problem.removeprefix(': ') for problem in problems)}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    return _anchored(scenario, path.parent)


def _anchored(scenario: Scenario, folder: Path) -> Scenario:
    phases = tuple(
        phase.model_copy(update={"trace": folder / phase.trace}) if isinstance(phase, ReplayPhase) else phase
        for phase in scenario.phases
    )
    sentences = None if scenario.sentences is None else folder / scenario.sentences
    return scenario.model_copy(update={"phases": phases, "sentences": sentences})
