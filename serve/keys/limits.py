"""What a key may use, and the periods in which its characters are counted."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Period = Literal["day", "month", "ever"]
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
KeyName = Annotated[str, StringConstraints(pattern=NAME)]
# Far more than a server has.
MAX_MODELS = 1000
# The name of a model has the same limit.
ModelName = Annotated[str, StringConstraints(max_length=64)]
# Larger than any quota that clients can read as an integer of 53 bits.
_MAX = 2**53 - 1


class KeyLimits(BaseModel):
    """The limits of a key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    characters: int | None = Field(None, ge=0, le=_MAX, description="Source characters per period; none: no limit")
    period: Period = Field("month", description="Period of the characters, in UTC")
    requests_per_minute: int | None = Field(None, ge=0, le=2**31 - 1, description="Requests per minute; none: no limit")
    concurrency: int | None = Field(None, ge=1, le=2**31 - 1, description="Requests at once; none: no limit")
    priority: int = Field(0, ge=-1000, le=1000, description="Requests with a higher priority start earlier")
    models: tuple[ModelName, ...] = Field(
        (), max_length=MAX_MODELS, description="Names of the models that the key may use; none: all"
    )

    @property
    def needs_count(self) -> bool:
        """Whether the limits apply to all processes together, which needs a common count."""
        return self.characters is not None or self.requests_per_minute is not None


def is_name(text: str) -> bool:
    """Returns whether a key may have this name."""
    return re.fullmatch(NAME, text) is not None


def period_start(period: Period, now_seconds: float) -> int:
    """Returns the start of the period that contains a time, in seconds since 1970; 0 for `ever`."""
    now = datetime.fromtimestamp(now_seconds, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case "day":
            return int(now.timestamp())
        case "month":
            return int(now.replace(day=1).timestamp())
        case "ever":
            return 0


def period_end(period: Period, start_seconds: int) -> int | None:
    """Returns the end of the period with this start; None for `ever`."""
    start = datetime.fromtimestamp(start_seconds, UTC)
    match period:
        case "day":
            return int((start + timedelta(days=1)).timestamp())
        case "month":
            # Every month has ended 31 days later.
            return int((start + timedelta(days=31)).replace(day=1).timestamp())
        case "ever":
            return None
