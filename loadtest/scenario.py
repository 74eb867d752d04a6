"""What a load consists of: phases one after the other, and kinds of requests mixed by weight. Written as YAML.

Every field is described here and nowhere else; unknown ones are refused by name. Times are drawn by
`loadtest.scenario`, requests by `loadtest.plan`.

When requests are meant to be sent: the whole plan is drawn before the first one leaves.

Drawing the times first is what makes the load open-loop: a slow answer cannot hold back the requests behind it. Knows
no clock and no protocol; `loadtest.plan` draws a plan and `loadtest.generator` keeps it.

The search options of the requests of a load: those of the server, from flags and files. Knows nothing else.

Recorded traffic to be sent again: when each request came and, if it was recorded, what it asked.

A trace is a UTF-8 file with a request on each line: a number, its time in seconds from any origin, or a JSON object
with `seconds` and optionally `text` and `options`, named as in a request to the server. Called by
`loadtest.scenario`.

A request of a load before it is sent: what it asks, over which protocol, and when its client gives up.

Drawn by `loadtest.plan`, sent by the clients.

The sentences that the load is made of: a file of the user's, or a few of our own.

A request's texts are drawn with replacement, so that requests differ in length as they do in life.
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
# Requests per second at times, of shape (n,), in seconds from the start; the same shape.
RateFunction = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def poisson_arrivals(rate: float, duration_seconds: float, seed: int) -> Arrivals:
    """Returns the arrivals of a Poisson process, the same for the same seed.

    Given their number, the arrivals of a Poisson process are independent and uniform over the interval (Kingman 1993,
    Poisson Processes, section 2.4), so two draws make an exact one.

    Args:
        rate: mean number of arrivals per second.
        duration_seconds: length of the run.
        seed: of the random generator.
    """
    return _poisson(rate, duration_seconds, np.random.default_rng(seed))


def constant_arrivals(rate: float, duration_seconds: float) -> Arrivals:
    """Returns arrivals exactly `1 / rate` seconds apart, the first at 0."""
    return np.arange(round(rate * duration_seconds), dtype=np.float64) / rate


def burst_arrivals(
    rate: float, peak_rate: float, duration_seconds: float, seed: int, *, every_seconds: float, burst_seconds: float
) -> Arrivals:
    """Returns the arrivals of a Poisson process whose rate jumps, the same for the same seed.

    Args:
        rate: mean number of arrivals per second between the bursts.
        peak_rate: the same in a burst.
        duration_seconds: length of the run.
        seed: of the random generator.
        every_seconds: from the beginning of a burst to that of the next; the first begins after the first pause.
        burst_seconds: length of a burst.
    """

    def rate_at(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        in_burst = seconds % every_seconds >= every_seconds - burst_seconds
        return np.where(in_burst, peak_rate, rate)

    return _varying(rate_at, max(rate, peak_rate), duration_seconds, seed)


def ramp_arrivals(rate: float, last_rate: float, duration_seconds: float, seed: int) -> Arrivals:
    """Returns the arrivals of a Poisson process whose rate changes evenly, the same for the same seed.

    Args:
        rate: mean number of arrivals per second at the start.
        last_rate: the same at the end.
        duration_seconds: length of the run.
        seed: of the random generator.
    """

    def rate_at(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(rate + (last_rate - rate) * seconds / duration_seconds)

    return _varying(rate_at, max(rate, last_rate), duration_seconds, seed)


def replayed_arrivals(times: Sequence[float], speed: float) -> Arrivals:
    """Returns recorded times as arrivals from 0 on, `speed` times as fast as they were."""
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
    """The server's search options; flags are text, and YAML has no tuples."""

    model_config = ConfigDict(strict=False)

    def given(self) -> dict[str, Any]:
        """Returns those that differ from their defaults, by the names of the contract."""
        return self.model_dump(exclude_defaults=True, mode="json")


class TracedRequest(BaseModel):
    """A request that once came."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = Field(allow_inf_nan=False, description="When it came, from any origin.")
    text: tuple[str, ...] | None = Field(None, min_length=1, description="Its texts; else sentences are drawn.")
    options: SearchOptions | None = Field(None, description="How it was searched; else as its kind says.")


_LINE: TypeAdapter[float | TracedRequest] = TypeAdapter(float | TracedRequest)


def read_trace(path: Path) -> list[TracedRequest]:
    """Returns the requests of a trace in the order of their times.

    Raises:
        OSError: if the file cannot be read.
        ValueError: naming the line that is no request, or if there is none.
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
    """What is asked of a server that translates in many directions, as ISO 639-1 codes; the names are the contract's.

    A server with a single direction takes both to be empty.
    """

    source_language: str = ""
    target_language: str = ""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A request.

    Attributes:
        texts: what is to be translated.
        protocol: how it travels.
        kind: what it is called in reports.
        languages: from which into which.
        options: how is searched, by the names of the contract.
        timeout_seconds: how long it waits for its answer; the server is told.
        cancel_after_seconds: when its client goes away without waiting; None: it waits.
    """

    texts: tuple[str, ...]
    protocol: LoadProtocol = "grpc"
    kind: str = "requests"
    languages: Languages = Languages()
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout_seconds: float = 10.0
    cancel_after_seconds: float | None = None


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
    protocol: LoadProtocol = Field("grpc", description="How they travel.")
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
        for field_name, names in {
            "requests": [kind.name for kind in self.requests],
            "phases": [phase.name for phase in self.phases],
        }.items():
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ValueError(f"{field_name}: name: {twice!r} twice, expected different names")
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


# The types of options that say what is translated, of every command that sends load.
SentencesPath = Annotated[
    Path | None, Field(description="UTF-8 file, a sentence per line. Default: ten built-in ones.")
]
SourceLanguage = Annotated[
    str, Field(description="ISO 639-1 code of the sentences, if the model reads several languages.")
]
TargetLanguage = Annotated[str, Field(description="ISO 639-1 code of the translations, if the model writes several.")]
# Sentences of the demo grammar, short and long ones.
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
    """Returns the lines of a UTF-8 file that are not blank, or the built-in sentences.

    Raises:
        ScenarioError: if the file cannot be read, is not UTF-8 or holds no sentence.
    """
    if path is None:
        return DEFAULT_SENTENCES
    try:
        sentences = tuple(line for line in path.read_text(encoding="utf-8").split("\n") if line.strip())
    except (OSError, ValueError) as error:
        raise ScenarioError(f"sentences: {path}: {error}") from error
    if not sentences:
        raise ScenarioError(f"sentences: {path}: expected at least one line that is not blank")
    return sentences


def describe(sentences: Sequence[str]) -> dict[str, float]:
    """Returns how many sentences there are, and how many words they have."""
    words = np.array([len(sentence.split()) for sentence in sentences])
    p50, p90, longest = np.percentile(words, (50, 90, 100), method="inverted_cdf").tolist()
    return {"sentences": len(sentences), "words_p50": p50, "words_p90": p90, "words_max": longest}
