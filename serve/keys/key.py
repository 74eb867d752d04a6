"""An API key: a public id, a secret of which only the digest is kept, limits, and the periods of its counts."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

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

    fetch: bool = Field(False, description="Whether requests may cause downloads of models on demand")
    approve: bool = Field(False, description="Whether the key may approve corrections and change shared memories")
    callbacks: bool = Field(False, description="Whether documents of the key may have call backs")

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


PREFIX = "dragoman"
_ID_BYTES = 6
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Key:
    """A key without its secret.

    Attributes:
        id: of its counts; never given to another key.
        name: for people, logs and metrics; empty: it has none.
        digest: SHA-256 of the whole key.
        created_seconds, revoked_seconds: since 1970; None: not known, or not revoked.
    """

    id: str
    name: str
    digest: bytes
    limits: KeyLimits = field(default_factory=KeyLimits)
    created_seconds: int | None = None
    revoked_seconds: int | None = None

    def matches(self, digest: bytes) -> bool:
        """Returns whether a digest is that of the key; the time does not depend on the answer."""
        return hmac.compare_digest(self.digest, digest)


def digest_of(key: bytes) -> bytes:
    """Returns the digest of a key. Keys are random and long, so that a fast hash is enough."""
    return hashlib.sha256(key).digest()


def new_secret() -> tuple[str, str]:
    """Returns the id and the text of a new key, as in `dragoman_0a1b2c3d4e5f_...`."""
    key_id = secrets.token_hex(_ID_BYTES)
    return key_id, f"{PREFIX}_{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"


def id_of(key: str) -> str | None:
    """Returns the id in the text of a key; None: it has another form."""
    prefix, _, rest = key.partition("_")
    key_id, separator, _ = rest.partition("_")
    return key_id if prefix == PREFIX and separator else None


def describe_key(key: Key) -> dict[str, Any]:
    """Returns the fields of a key as operators see them: without secret and digest, with times in UTC."""
    return {
        "name": key.name,
        "id": key.id,
        **key.limits.model_dump(mode="json"),
        "created": time_text(key.created_seconds),
        "revoked": time_text(key.revoked_seconds),
    }


def time_text(seconds: int | None) -> str | None:
    """Returns seconds since 1970 in the form of RFC 3339, as in 2026-11-25T00:00:00Z."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
