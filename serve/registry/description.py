"""The public description of a served model: what it translates, its state and its limits."""

from dataclasses import dataclass
from enum import StrEnum


class ModelState(StrEnum):
    """The readiness of a model; the next request for an unloaded one loads it."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    UNLOADED = "unloaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDirection:
    """A direction of a model."""

    source_language: str
    target_language: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """The limits of a model and its settings.

    Attributes:
        max_source_tokens: longest source, the end token included.
        max_target_tokens: longest translation, the end token excluded.
        max_texts: texts per request.
        max_text_characters: Unicode characters per text.
        slots: rows of all engines together.
        engine_slots: rows of one engine, which bound the beam size.
        queue_limit: rows that may wait.
    """

    max_source_tokens: int
    max_target_tokens: int
    max_texts: int
    max_text_characters: int
    slots: int
    engine_slots: int
    queue_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """The public description of a served model.

    Attributes:
        description: texts that the model is for; empty: unknown.
        directions: none if the model is multilingual.
        languages: of a multilingual model, which translates between any two of them; else none.
    """

    name: str
    description: str
    state: ModelState
    directions: tuple[ModelDirection, ...]
    languages: tuple[str, ...]
    precision: str
    alignments: bool
    manifest_sha256: str
    limits: ModelLimits


class FetchState(StrEnum):
    """The state of a model that may be fetched."""

    AVAILABLE = "available"
    FETCHING = "fetching"
    FAILED = "failed"


@dataclass(slots=True)
class AvailableModel:
    """A model that the server fetches when a request needs it, and the progress of its download, 0 while unknown."""

    name: str
    source_language: str
    target_language: str
    state: FetchState = FetchState.AVAILABLE
    done_bytes: int = 0
    total_bytes: int = 0

    def __str__(self) -> str:
        sizes = f", {self.done_bytes / 1e6:.0f} of {self.total_bytes / 1e6:.0f} MB" if self.total_bytes else ""
        return f"{self.name}{sizes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelList:
    """The models of a server, and those that requests bring."""

    models: tuple[ModelDescription, ...]
    available: tuple[AvailableModel, ...]
