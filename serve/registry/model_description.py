"""What clients are told of a served model: plain, frozen values that both interfaces write in their own form.

Made for `serve.registry.served_model`. Knows neither protocol.
"""

from dataclasses import dataclass
from enum import StrEnum

from serve.registry.pipeline import Pipeline


class ModelState(StrEnum):
    """Whether a model translates now."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDirection:
    """What a model translates from and into, as ISO 639-1 codes."""

    source_language: str
    target_language: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """What a model and its settings allow.

    Attributes:
        max_source_tokens: the longest source, in tokens, with the end token.
        max_target_tokens: the longest translation, in tokens, without the end token.
        max_texts: texts in one request.
        max_text_characters: Unicode characters of one text.
        slots: rows of all engines together.
        engine_slots: rows of one engine: the largest beam.
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
    """A served model.

    Attributes:
        name: what requests call it.
        state: whether it translates now.
        directions: from what into what.
        precision: what it computes in.
        alignments: whether it tells where it looks.
        manifest_sha256: hash of the manifest of its bundle, which another bundle does not have.
        limits: what it allows.
    """

    name: str
    state: ModelState
    directions: tuple[ModelDirection, ...]
    precision: str
    alignments: bool
    manifest_sha256: str
    limits: ModelLimits


def describe(name: str, manifest_sha256: str, pipeline: Pipeline) -> ModelDescription:
    """Returns what is to be told of a model now."""
    manifest, settings = pipeline.manifest, pipeline.settings
    return ModelDescription(
        name=name,
        state=_state(pipeline),
        directions=tuple(
            ModelDirection(source_language=each.source, target_language=each.target) for each in manifest.directions
        ),
        precision=manifest.precision,
        alignments=settings.alignments,
        manifest_sha256=manifest_sha256,
        limits=ModelLimits(
            max_source_tokens=manifest.max_source_tokens,
            max_target_tokens=manifest.max_target_tokens,
            max_texts=pipeline.limits.max_texts,
            max_text_characters=settings.max_text_characters,
            slots=settings.total_slots,
            engine_slots=settings.slots,
            queue_limit=settings.max_waiting,
        ),
    )


def _state(pipeline: Pipeline) -> ModelState:
    if pipeline.readiness.ready:
        return ModelState.READY
    return ModelState.LOADING if pipeline.readiness.healthy else ModelState.FAILED
