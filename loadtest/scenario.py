"""A load: phases in order, and kinds of requests mixed by weight. Written as a YAML scenario.

A phase draws its send times before the run. That makes the load open-loop: a slow answer cannot delay later requests.
Texts are drawn with replacement from a file or from built-in sentences, so that their lengths vary.

A trace of recorded traffic is a UTF-8 file with one request per line. A line is a number, its time in seconds from any
origin, or a JSON object with `seconds` and optionally `text` and `options`, named as in a request to the server.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from serve.translation.fields import SearchFields

# Shape (requests,), seconds from the start of the run, ascending, each in [0, duration).
Arrivals = NDArray[np.float64]
# Maps times, shape (n,), seconds from the start, to requests per second, same shape.
RateFunction = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def poisson_arrivals(rate: float, duration_seconds: float, seed: int) -> Arrivals:
    """Returns the arrivals of a Poisson process of the mean `rate` per second; the same seed gives the same arrivals.

    Given their number, the arrivals of a Poisson process are independent and uniform over the interval (Kingman 1993,
    Poisson Processes, section 2.4), so two draws make an exact one.
    """
    return _poisson(rate, duration_seconds, np.random.default_rng(seed))


def constant_arrivals(rate: float, duration_seconds: float) -> Arrivals:
    """Returns arrivals exactly `1 / rate` seconds apart, the first at 0."""
    return np.arange(round(rate * duration_seconds), dtype=np.float64) / rate


def burst_arrivals(
    rate: float, peak_rate: float, duration_seconds: float, seed: int, *, every_seconds: float, burst_seconds: float
) -> Arrivals:
    """Returns the arrivals of a Poisson process whose mean rate jumps between two values.

    Every period of `every_seconds` ends with a burst at `peak_rate`.
    """

    def rate_at(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        in_burst = seconds % every_seconds >= every_seconds - burst_seconds
        return np.where(in_burst, peak_rate, rate)

    return _varying(rate_at, max(rate, peak_rate), duration_seconds, seed)


def ramp_arrivals(rate: float, last_rate: float, duration_seconds: float, seed: int) -> Arrivals:
    """Returns the arrivals of a Poisson process whose mean rate changes linearly from `rate` to `last_rate`."""

    def rate_at(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(rate + (last_rate - rate) * seconds / duration_seconds)

    return _varying(rate_at, max(rate, last_rate), duration_seconds, seed)


def replayed_arrivals(times: Sequence[float], speed: float) -> Arrivals:
    """Shifts recorded times to start at 0 and divides them by `speed`."""
    recorded: Arrivals = np.asarray(times, dtype=np.float64)
    return np.asarray((recorded - recorded[0]) / speed)


def _varying(rate_at: RateFunction, peak_rate: float, duration_seconds: float, seed: int) -> Arrivals:
    """Thins a Poisson process of the peak rate: an arrival stays with probability rate / peak (Lewis, Shedler 1979)."""
    generator = np.random.default_rng(seed)
    candidates = _poisson(peak_rate, duration_seconds, generator)
    kept = generator.uniform(0.0, peak_rate, len(candidates)) < rate_at(candidates)
    return np.asarray(candidates[kept])


def _poisson(rate: float, duration_seconds: float, generator: np.random.Generator) -> Arrivals:
    count = generator.poisson(rate * duration_seconds)
    return np.sort(generator.uniform(0.0, duration_seconds, count))


class SearchOptions(SearchFields):
    """The server's search options in lax mode: flags are text, and YAML has no tuples."""

    model_config = ConfigDict(strict=False)

    def given(self) -> dict[str, Any]:
        """Returns the options that differ from their defaults, by the names of the API."""
        return self.model_dump(exclude_defaults=True, mode="json")


class TracedRequest(BaseModel):
    """A recorded request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = Field(allow_inf_nan=False, description="Time of the request, from any origin.")
    text: tuple[str, ...] | None = Field(None, min_length=1, description="Texts. Default: drawn sentences.")
    options: SearchOptions | None = Field(None, description="Search options. Default: those of its kind.")


_LINE: TypeAdapter[float | TracedRequest] = TypeAdapter(float | TracedRequest)


def read_trace(path: Path) -> list[TracedRequest]:
    """Reads the requests of a trace, sorted by time.

    Raises:
        OSError: if the file cannot be read.
        ValueError: with the number of the first invalid line, or if there are no requests.
    """
    requests = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            parsed = _LINE.validate_json(line)
        except ValidationError as error:
            raise ValueError(f"line {number}: expected seconds or an object: {error.errors()[-1]['msg']}") from error
        requests.append(parsed if isinstance(parsed, TracedRequest) else TracedRequest(seconds=parsed))
    if not requests:
        raise ValueError("expected at least one request")
    return sorted(requests, key=lambda request: request.seconds)


LoadProtocol = Literal["grpc", "grpc-stream", "grpc-many", "rest", "rest-stream"]


@dataclass(frozen=True, slots=True)
class Languages:
    """Languages of a request as ISO 639-1 codes; both are empty for a server with one direction."""

    source_language: str = ""
    target_language: str = ""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A request of a load.

    Attributes:
        kind: name in reports.
        options: search options, by the names of the API.
        timeout_seconds: deadline, also sent to the server.
        cancel_after_seconds: when its client cancels it; None if the client waits for the answer.
    """

    texts: tuple[str, ...]
    protocol: LoadProtocol = "grpc"
    kind: str = "requests"
    languages: Languages = Languages()
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout_seconds: float = 10.0
    cancel_after_seconds: float | None = None


MAX_RATE = 100_000.0
Rate = Annotated[float, Field(gt=0, le=MAX_RATE, description="Mean requests per second.")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ScenarioError(Exception):
    """A scenario or a file that it names cannot be used; the message names the field and the expected value."""


class _Part(BaseModel):
    """Base of scenario models; unknown fields are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Phase(_Part):
    """A phase of a load."""

    name: str = Field("load", min_length=1, description="Name in reports.")

    def draw(self, duration_seconds: float, seed: int) -> Arrivals:
        """Returns the send times in seconds from the start of the phase."""
        raise NotImplementedError


class TimedPhase(Phase):
    """A phase with a duration and a rate."""

    duration_seconds: Seconds = Field(30.0, description="Length of the phase.")
    rate: Rate = 20.0


class PoissonPhase(TimedPhase):
    """Poisson arrivals: requests of many independent users."""

    arrivals: Literal["poisson"]

    def draw(self, duration_seconds: float, seed: int) -> Arrivals:
        """Draws the arrivals of the phase."""
        return poisson_arrivals(self.rate, duration_seconds, seed)


class ConstantPhase(TimedPhase):
    """Requests at equal intervals."""

    arrivals: Literal["constant"]

    def draw(self, duration_seconds: float, seed: int) -> Arrivals:  # noqa: ARG002 - nothing is random
        """Returns the arrivals of the phase."""
        return constant_arrivals(self.rate, duration_seconds)


class BurstPhase(TimedPhase):
    """A Poisson process whose rate jumps to a peak and back."""

    arrivals: Literal["burst"]
    rate: Rate = Field(20.0, description="Mean requests per second between bursts.")
    peak_rate: Rate = Field(100.0, description="Mean requests per second in a burst.")
    every_seconds: Seconds = Field(10.0, description="From the start of one burst to the next.")
    burst_seconds: Seconds = Field(1.0, description="Length of a burst.")

    @model_validator(mode="after")
    def _check_burst(self) -> Self:
        if self.burst_seconds > self.every_seconds:
            raise ValueError(f"burst_seconds: expected at most every_seconds, got {self.burst_seconds}")
        return self

    def draw(self, duration_seconds: float, seed: int) -> Arrivals:
        """Draws the arrivals of the phase."""
        return burst_arrivals(
            self.rate,
            self.peak_rate,
            duration_seconds,
            seed,
            every_seconds=self.every_seconds,
            burst_seconds=self.burst_seconds,
        )


class RampPhase(TimedPhase):
    """A Poisson process whose rate changes linearly."""

    arrivals: Literal["ramp"]
    rate: Rate = Field(20.0, description="Mean requests per second at the start.")
    last_rate: Rate = Field(100.0, description="Mean requests per second at the end.")

    def draw(self, duration_seconds: float, seed: int) -> Arrivals:
        """Draws the arrivals of the phase."""
        return ramp_arrivals(self.rate, self.last_rate, duration_seconds, seed)


class ReplayPhase(Phase):
    """Requests at the times of a recorded trace."""

    arrivals: Literal["replay"]
    trace: Path = Field(description="File with one request per line, relative to the scenario.")
    speed: float = Field(1.0, gt=0, allow_inf_nan=False, description="Factor by which the trace is sped up.")

    def read(self) -> list[TracedRequest]:
        """Reads the recorded requests.

        Raises:
            ScenarioError: if the trace cannot be read.
        """
        try:
            return read_trace(self.trace)
        except (OSError, ValueError) as error:
            raise ScenarioError(f"trace: {self.trace}: {error}") from error

    def draw(self, duration_seconds: float, seed: int) -> Arrivals:  # noqa: ARG002 - nothing is random
        """Returns the recorded times."""
        return replayed_arrivals([request.seconds for request in self.read()], self.speed)


AnyPhase = Annotated[
    PoissonPhase | ConstantPhase | BurstPhase | RampPhase | ReplayPhase, Field(discriminator="arrivals")
]


class RequestKind(_Part):
    """A kind of requests."""

    name: str = Field("requests", min_length=1, description="Name in reports.")
    weight: float = Field(1.0, gt=0, allow_inf_nan=False, description="Share of the requests, relative to other kinds.")
    protocol: LoadProtocol = Field("grpc", description="Protocol of the requests.")
    texts: dict[Annotated[int, Field(ge=1)], Annotated[float, Field(gt=0)]] = Field(
        {1: 1.0}, min_length=1, description="Weight of each number of texts, as in {1: 3, 8: 1}."
    )
    text: str | None = Field(None, description="Text of every request. Default: drawn sentences.")
    source_language: str = Field("", description="ISO 639-1 code of the sentences.")
    target_language: str = Field("", description="ISO 639-1 code of the translations.")
    options: SearchOptions = Field(SearchOptions(), description="Search options.")
    timeout_seconds: float = Field(10.0, gt=0, le=3600, description="Timeout of a request.")
    cancelled_share: float = Field(0.0, ge=0, le=1, description="Share of requests that their clients cancel.")
    cancelled_within_seconds: Seconds = Field(0.5, description="Latest cancellation; the time is random.")


class Scenario(_Part):
    """A load: kinds of requests and phases."""

    sentences: Path | None = Field(
        None, description="UTF-8 file, one sentence per line, relative to the scenario. Default: built-in ones."
    )
    warm_up_seconds: float = Field(3.0, ge=0, allow_inf_nan=False, description="Load before the first phase.")
    requests: tuple[RequestKind, ...] = Field((RequestKind(),), min_length=1, description="Kinds of requests.")
    phases: tuple[AnyPhase, ...] = Field(min_length=1, description="Phases, in order.")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for field_name, names in {
            "requests": [kind.name for kind in self.requests],
            "phases": [phase.name for phase in self.phases],
        }.items():
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ValueError(f"{field_name}: name: expected different names, got {twice!r} twice")
        return self


def read_scenario(path: Path) -> Scenario:
    """Reads a scenario from a YAML file. Paths in it are relative to its folder.

    Raises:
        ScenarioError: with every field that is invalid or unknown.
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


# Types of the options for texts and languages, shared by all commands that generate load.
SentencesPath = Annotated[Path | None, Field(description="UTF-8 file, one sentence per line. Default: built-in ones.")]
SourceLanguage = Annotated[str, Field(description="Language of the sentences (ISO 639-1), for multilingual models.")]
TargetLanguage = Annotated[str, Field(description="Language of the translations (ISO 639-1), for multilingual models.")]
# Sentences of the demo grammar, short and long.
DEFAULT_SENTENCES = (
    "Peter is not sleeping.",
    "The queens were very old.",
    "Does the man close the window?",
    "The old brother will read a newspaper.",
    "I know that the boy must not drive to the garden.",
    "Tomorrow he must find sixty-nine lamps at the station.",
    "This cake that he buys was cheaper than my pears.",
    "These old hats that he sold are bigger than the expensive dresses.",
    "The man brings her a pear although the hungry farmers eat her expensive soup.",
    "Because our friendly son wanted to put an old letter under the bench, their father wanted to go to the village.",
)


def read_sentences(path: Path | None) -> tuple[str, ...]:
    """Returns the nonblank lines of a UTF-8 file, or the built-in sentences.

    Raises:
        ScenarioError: if the file cannot be read, is not UTF-8 or has only blank lines.
    """
    if path is None:
        return DEFAULT_SENTENCES
    try:
        sentences = tuple(line for line in path.read_text(encoding="utf-8").split("\n") if line.strip())
    except (OSError, ValueError) as error:
        raise ScenarioError(f"sentences: {path}: {error}") from error
    if not sentences:
        raise ScenarioError(f"sentences: {path}: expected at least one nonblank line")
    return sentences


def describe(sentences: Sequence[str]) -> dict[str, float]:
    """Returns the number of sentences and percentiles of their length in words."""
    words = np.array([len(sentence.split()) for sentence in sentences])
    p50, p90, longest = np.percentile(words, (50, 90, 100), method="inverted_cdf").tolist()
    return {"sentences": len(sentences), "words_p50": p50, "words_p90": p90, "words_max": longest}
