"""Decides which models leave the memory: those that were idle for too long, and the least recently used for others.

A pinned model never leaves. One with requests leaves only to make room, after them, if no idle one is left.
"""

from collections.abc import Collection, Iterable

from dragoman.serve.registry.registry import ServedModel


def idle_since(models: Iterable[ServedModel], seconds: float) -> list[ServedModel]:
    """Returns the models that leave because they have had no request since a time."""
    return [item for item in models if not (item.uses.count or item.pinned) and item.uses.last_seconds <= seconds]


def make_room(models: Collection[ServedModel], needed_bytes: int, limit_bytes: float) -> tuple[list[ServedModel], bool]:
    """Returns the models that leave so that the others and `needed_bytes` more fit, and whether they do then.

    The least recently used ones leave first, and those without a request before those with some.
    """
    excess_bytes = sum(item.memory_bytes for item in models) + needed_bytes - limit_bytes
    leaving = list[ServedModel]()
    for item in sorted(models, key=lambda item: (item.uses.count > 0, item.uses.last_seconds)):
        if excess_bytes > 0 and not item.pinned:
            excess_bytes -= item.memory_bytes
            leaving.append(item)
    return leaving, excess_bytes <= 0
