"""A load as data: kinds of requests mixed by weight, phases in order, and the objective. Written as a YAML scenario.

A phase draws its send times before the run. That makes the load open-loop: a slow answer cannot delay later requests.
Texts are drawn with replacement from a file or from built-in sentences, so that their lengths vary.

A trace of recorded traffic is a UTF-8 file with one request per line. A line is a number, its time in seconds from any
origin, or a JSON object with `seconds` and optionally `text` and `options`, named as in a request to the server.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import AfterValidator, ConfigDict, Field, ValidationError, model_validator

from dragoman.loadtest.protocols import PROTOCOLS, Protocols, RequestProtocol
from dragoman.model.config import Section
from dragoman.model.errors import UserError, problems_of, reason_of
from dragoman.serve.translation.fields import SearchFields

# Seconds from the start of a phase, ascending, shape (requests,).
Arrivals = NDArray[np.float64]
# A key of `PROTOCOLS`, or of the protocols of a scenario.
LoadProtocol = str

MAX_RATE = 100_000.0
# Short and long sentences of everyday words.
BUILT_IN_SENTENCES = Path(__file__).with_name("sentences.txt")
# A trace ends this long after its last recorded request.
AFTER_A_TRACE_SECONDS = 1.0
Rate = Annotated[float, Field(gt=0, le=MAX_RATE, description="Mean requests per second.")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# Types of the options for texts and languages, shared by all commands that generate load.
SentencesPath = Annotated[Path | None, Field(description="UTF-8 file, one sentence per line. Default: built-in ones.")]
SourceLanguage = Annotated[str, Field(description="Language of the sentences (ISO 639-1), for multilingual models.")]
TargetLanguage = Annotated[str, Field(description="Language of the translations (ISO 639-1), for multilingual models.")]


class ScenarioError(UserError):
    """A scenario or a file that it names cannot be used; the message names the field and the expected value."""


# A path in a scenario file is relative to its folder, which is the context of the validation.
_RelativePath = Annotated[Path, AfterValidator(lambda path, info: (info.context or Path()) / path)]


class SearchOptions(SearchFields):
    """The server's search options in lax mode: YAML has no tuples."""

    model_config = ConfigDict(strict=False)

    def given(self) -> dict[str, Any]:
        """Returns the options that differ from their defaults, by the names of the API."""
        return self.model_dump(exclude_defaults=True, mode="json")


class _Phase(Section):
    name: str = Field("load", min_length=1, description="Name in reports.")


class TimedPhase(_Phase):
    """A phase with a duration, a Poisson process whose mean rate may vary."""

    duration_seconds: Seconds = Field(30.0, description="Length of the phase.")
    rate: Rate = 20.0

    def draw(self, random: np.random.Generator) -> Arrivals:
        """Returns the send times in seconds from the start of the phase.

        Thins a Poisson process of the peak rate: an arrival stays with probability rate / peak (Lewis and Shedler
        1979). Given their number, the arrivals of a Poisson process are independent and uniform over the interval
        (Kingman 1993, Poisson Processes, section 2.4).
        """
        peak = max(value for name, value in self if name in ("rate", "peak_rate", "last_rate"))
        candidates = np.sort(random.uniform(0.0, self.duration_seconds, random.poisson(peak * self.duration_seconds)))
        kept = random.uniform(0.0, peak, len(candidates)) < self._rate_at(candidates)
        return np.asarray(candidates[kept])

    def _rate_at(self, seconds: Arrivals) -> Arrivals:
        return np.full_like(seconds, self.rate)


class PoissonPhase(TimedPhase):
    """Poisson arrivals: requests of many independent users."""

    arrivals: Literal["poisson"] = "poisson"


class ConstantPhase(TimedPhase):
    """Requests at equal intervals, the first at 0."""

    arrivals: Literal["constant"] = "constant"

    def draw(self, random: np.random.Generator) -> Arrivals:  # noqa: ARG002 - nothing is random
        """Returns the arrivals of the phase."""
        return np.arange(round(self.rate * self.duration_seconds), dtype=np.float64) / self.rate


class BurstPhase(TimedPhase):
    """A Poisson process whose rate jumps to a peak and back; every period ends with a burst."""

    arrivals: Literal["burst"] = "burst"
    peak_rate: Rate = Field(100.0, description="Mean requests per second in a burst.")
    every_seconds: Seconds = Field(10.0, description="From the start of one burst to the next.")
    burst_seconds: Seconds = Field(1.0, description="Length of a burst.")

    @model_validator(mode="after")
    def _check_burst(self) -> Self:
        if self.burst_seconds > self.every_seconds:
            raise ValueError(f"burst_seconds: expected at most every_seconds, got {self.burst_seconds}")
        return self

    def _rate_at(self, seconds: Arrivals) -> Arrivals:
        in_burst = seconds % self.every_seconds >= self.every_seconds - self.burst_seconds
        return np.where(in_burst, self.peak_rate, self.rate)


class RampPhase(TimedPhase):
    """A Poisson process whose rate changes linearly from `rate` to `last_rate`."""

    arrivals: Literal["ramp"] = "ramp"
    last_rate: Rate = Field(100.0, description="Mean requests per second at the end.")

    def _rate_at(self, seconds: Arrivals) -> Arrivals:
        return np.asarray(self.rate + (self.last_rate - self.rate) * seconds / self.duration_seconds)


class TracedRequest(Section):
    """A recorded request."""

    seconds: float = Field(allow_inf_nan=False, description="Time of the request, from any origin.")
    text: tuple[str, ...] | None = Field(None, min_length=1, description="Texts. Default: drawn sentences.")
    options: SearchOptions | None = Field(None, description="Search options. Default: those of its kind.")

    @model_validator(mode="before")
    @classmethod
    def _read_number(cls, value: object) -> object:
        return {"seconds": value} if isinstance(value, int | float) else value


class ReplayPhase(_Phase):
    """Requests at the times of a recorded trace."""

    arrivals: Literal["replay"] = "replay"
    trace: _RelativePath = Field(description="File with one request per line, relative to the scenario.")
    speed: float = Field(1.0, gt=0, allow_inf_nan=False, description="Factor by which the trace is sped up.")

    @cached_property
    def recorded(self) -> list[TracedRequest]:
        """The recorded requests, sorted by time; a `ScenarioError` names the first invalid line."""
        requests, number = list[TracedRequest](), 0
        try:
            for number, line in enumerate(self.trace.read_text(encoding="utf-8").splitlines(), start=1):  # noqa: B007 - named below
                if line.strip():
                    requests.append(TracedRequest.model_validate_json(line))
        except ValidationError as error:
            problem = f"line {number}: expected seconds or an object: {error.errors()[-1]['msg']}"
            raise ScenarioError(f"trace: {self.trace}: {problem}") from error
        except (OSError, ValueError) as error:
            raise ScenarioError(f"trace: {self.trace}: {reason_of(error)}") from error
        if not requests:
            raise ScenarioError(f"trace: {self.trace}: expected at least one request")
        return sorted(requests, key=lambda request: request.seconds)

    @property
    def duration_seconds(self) -> float:
        """Length of the phase."""
        return (self.recorded[-1].seconds - self.recorded[0].seconds) / self.speed + AFTER_A_TRACE_SECONDS

    @property
    def rate(self) -> float:
        """Mean requests per second."""
        return len(self.recorded) / self.duration_seconds

    def draw(self, random: np.random.Generator) -> Arrivals:  # noqa: ARG002 - nothing is random
        """Returns the recorded times, from 0."""
        seconds = np.array([request.seconds for request in self.recorded])
        return np.asarray((seconds - seconds[0]) / self.speed)


AnyPhase = Annotated[
    PoissonPhase | ConstantPhase | BurstPhase | RampPhase | ReplayPhase, Field(discriminator="arrivals")
]


class RequestKind(Section):
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
    model: str = Field("", description="Name of the model, for servers of several.")
    options: SearchOptions = Field(SearchOptions(), description="Search options.")
    fields: dict[str, Any] = Field({}, description="More fields of the body, as the protocol names them.")
    timeout_seconds: float = Field(10.0, gt=0, le=3600, description="Timeout of a request.")
    cancelled_share: float = Field(0.0, ge=0, le=1, description="Share of requests that their clients cancel.")
    cancelled_within_seconds: Seconds = Field(0.5, description="Latest cancellation; the time is random.")

    def check(self, protocols: Protocols) -> None:
        """Checks that the protocol exists and sends all that this kind sets; raises ValueError with the field."""
        if self.protocol not in protocols:
            raise ValueError(f"protocol: expected one of {', '.join(protocols)}, got {self.protocol!r}")
        names = protocols[self.protocol].names
        for name in ("source_language", "target_language", "model", "options"):
            if name not in names and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: expected none, because {self.protocol} does not send it")
        if "$model" in protocols[self.protocol].call and not self.model:
            raise ValueError(f"model: expected a name, because the path of {self.protocol} contains it")
        if names.isdisjoint({"texts", "encoded_texts", "each"}) and set(self.texts) != {1}:
            raise ValueError(f"texts: expected one text, because {self.protocol} sends no more")
        protocols[self.protocol].check_fields(self.fields)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A request of a load; by default with the search options of its kind, and a client that waits for the answer."""

    texts: tuple[str, ...]
    kind: RequestKind = field(default_factory=RequestKind)
    options: SearchOptions | None = None
    cancel_after_seconds: float | None = None

    @property
    def values(self) -> dict[str, Any]:
        """The values of the names in a protocol's templates."""
        kind = self.kind
        return {
            "texts": self.texts,
            "text": self.texts[0] if self.texts else "",
            "encoded_texts": [text.encode() for text in self.texts],
            "count": len(self.texts),
            "model": kind.model,
            "options": (self.options or kind.options).given(),
            "source_language": kind.source_language,
            "target_language": kind.target_language,
        }

    def body(self, protocol: RequestProtocol) -> dict[str, Any]:
        """Returns the body of the request in a protocol."""
        return {**protocol.write(self.values), **self.kind.fields}


class Objective(Section):
    """A service level objective: a latency percentile and a share of failed requests."""

    percentile: float = Field(99.0, gt=0, lt=100, description="Bounded latency percentile.")
    latency_seconds: float = Field(0.3, gt=0, allow_inf_nan=False, description="Upper bound of that percentile.")
    first_token_seconds: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Bound of the first token of streams. Default: none."
    )
    failed_share: float = Field(0.0, ge=0, lt=1, description="Share of requests that may fail.")

    @model_validator(mode="after")
    def _check_first_token(self) -> Self:
        if self.first_token_seconds is not None and self.first_token_seconds > self.latency_seconds:
            raise ValueError(f"first_token_seconds: expected at most latency_seconds, got {self.first_token_seconds}")
        return self

    def __str__(self) -> str:
        first = "" if self.first_token_seconds is None else f", first token <= {self.first_token_seconds * 1000:g} ms"
        latency = f"p{self.percentile:g} <= {self.latency_seconds * 1000:g} ms{first}"
        return f"{latency}, failed {'0' if not self.failed_share else f'<= {self.failed_share:.2%}'}"


class Scenario(Section):
    """A load: kinds of requests, phases, and what is required of the server and of the generator."""

    sentences: _RelativePath | None = Field(
        None, description="UTF-8 file, one sentence per line, relative to the scenario. Default: built-in ones."
    )
    protocols: dict[str, RequestProtocol] = Field({}, description="More protocols, in the form of protocols.yaml.")
    warm_up_seconds: float = Field(3.0, ge=0, allow_inf_nan=False, description="Load before the first phase.")
    requests: tuple[RequestKind, ...] = Field((RequestKind(),), min_length=1, description="Kinds of requests.")
    phases: tuple[AnyPhase, ...] = Field(min_length=1, description="Phases, in order.")
    objective: Objective = Field(Objective(), description="Bounds of good answers, and goal of the capacity search.")
    max_lag_seconds: float = Field(0.01, gt=0, description="Largest p99 of the generator's lag in a valid run.")
    trial_seconds: Seconds = Field(10.0, description="Capacity search: measured length of a trial.")
    tolerance: float = Field(0.05, gt=0, lt=1, description="Capacity search: relative tolerance of the rate.")
    connections: int = Field(2, ge=1, description="gRPC connections per process of the generator.")
    seed: int = Field(1, ge=0, description="Seed of the send times and requests.")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for field_name, parts in (("requests", self.requests), ("phases", self.phases)):
            (name, count), *_ = Counter(part.name for part in parts).most_common()
            if count > 1:
                raise ValueError(f"{field_name}: name: expected different names, got {name!r} twice")
        for number, kind in enumerate(self.requests):
            try:
                kind.check(self.known_protocols)
            except ValueError as error:
                raise ValueError(f"requests.{number}.{error}") from error
        return self

    @property
    def known_protocols(self) -> Protocols:
        """The built-in protocols and those of the scenario."""
        return {**PROTOCOLS, **self.protocols}

    def with_fields(self, of_kinds: Mapping[str, Any], of_phases: Mapping[str, Any], **fields: object) -> Self:
        """Returns the scenario with other values in all kinds and phases; raises ScenarioError if it is invalid."""
        if of_phases and not any(isinstance(phase, TimedPhase) for phase in self.phases):
            raise ScenarioError(f"{next(iter(of_phases))}: expected a scenario with a phase that is no replay")
        phases = [phase.model_copy(update=of_phases if isinstance(phase, TimedPhase) else {}) for phase in self.phases]
        kinds = [kind.model_copy(update=of_kinds) for kind in self.requests]
        try:
            return type(self).model_validate({**dict(self), **fields, "requests": kinds, "phases": phases})
        except ValidationError as error:
            raise ScenarioError(describe_errors(error)) from error


def read_scenario(path: Path) -> Scenario:
    """Reads a scenario, whose paths are relative to its file; raises ScenarioError with each field that is wrong."""
    try:
        return Scenario.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")), context=path.parent)
    except ValidationError as error:
        raise ScenarioError(f"{path}: {describe_errors(error)}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ScenarioError(f"{path}: {reason_of(error)}") from error


def describe_errors(error: ValidationError) -> str:
    """Returns every invalid field with its problem, in one line."""
    return "; ".join(problems_of(error))


def read_sentences(path: Path | None) -> tuple[str, ...]:
    """Returns the nonblank lines of a file, or of the built-in one; raises ScenarioError if there are none."""
    path = path or BUILT_IN_SENTENCES
    try:
        sentences = tuple(line for line in path.read_text(encoding="utf-8").split("\n") if line.strip())
    except (OSError, ValueError) as error:
        raise ScenarioError(f"sentences: {path}: {reason_of(error)}") from error
    if not sentences:
        raise ScenarioError(f"sentences: {path}: expected at least one nonblank line")
    return sentences


def describe(sentences: Sequence[str]) -> dict[str, float]:
    """Returns the number of sentences and percentiles of their length in words."""
    words = np.array([len(sentence.split()) for sentence in sentences])
    p50, p90, longest = np.percentile(words, (50, 90, 100), method="inverted_cdf").tolist()
    return {"sentences": len(sentences), "words_p50": p50, "words_p90": p90, "words_max": longest}
