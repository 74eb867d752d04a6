"""Keys and their use as operators see them: without secrets and digests, with times in UTC."""

from datetime import UTC, datetime
from typing import Any

from dragoman.serve.keys.key import Key
from dragoman.serve.keys.limits import period_end, period_start
from dragoman.serve.keys.usage import UsageStore


def describe_key(key: Key) -> dict[str, Any]:
    """Returns the fields of a key."""
    return {
        "name": key.name,
        "id": key.id,
        **key.limits.model_dump(mode="json"),
        "created": time_text(key.created_seconds),
        "revoked": time_text(key.revoked_seconds),
    }


def describe_usage(key: Key, usage: UsageStore, now_seconds: float) -> dict[str, Any]:
    """Returns the used characters of the current period, as processes have written them."""
    limits = key.limits
    start = period_start(limits.period, now_seconds)
    return {
        "name": key.name,
        "characters": usage.used(key.id, start),
        "limit": limits.characters,
        "period_start": time_text(start) if start else None,
        "period_end": time_text(period_end(limits.period, start)),
    }


def time_text(seconds: int | None) -> str | None:
    """Returns seconds since 1970 in the form of RFC 3339, as in 2026-11-25T00:00:00Z."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
