"""Service level objectives: a latency percentile and a share of failed requests."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from loadtest.tally import Bound, LatencyHistogram, Tally


class Objective(BaseModel):
    """A service level objective."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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

    @property
    def bound(self) -> Bound:
        """The latency bound of a good answer."""
        return Bound(self.latency_seconds, self.first_token_seconds)

    def is_met(self, tally: Tally) -> bool:
        """Returns whether ended requests meet the objective. An empty tally does not."""
        return (
            tally.ok > 0
            and tally.failed_share <= self.failed_share
            and self._within(tally.latency, self.latency_seconds)
            and (self.first_token_seconds is None or self._within(tally.first_token, self.first_token_seconds))
        )

    def _within(self, durations: LatencyHistogram, most_seconds: float) -> bool:
        found = durations.percentile(self.percentile)
        return found is not None and found <= most_seconds

    def __str__(self) -> str:
        first = "" if self.first_token_seconds is None else f", first token <= {self.first_token_seconds * 1000:g} ms"
        latency = f"p{self.percentile:g} <= {self.latency_seconds * 1000:g} ms{first}"
        return f"{latency}, failed {'0' if not self.failed_share else f'<= {self.failed_share:.2%}'}"
