"""Interfaces for PyTorch and ONNX Runtime models that are compared step by step, and the bundle's text reader."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dragoman.export.answer import Answer, Gap
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.directions import directions_of
from dragoman.serve.bundle.tokenizer import load_tokenizer


class Reader:
    """Converts texts to source ids with the bundle's tokenizer, prefixes and suffix."""

    def __init__(self, bundle: Bundle) -> None:
        """Loads the tokenizer; raises TokenizerError if its files do not match the manifest."""
        manifest = bundle.manifest
        self._tokenizer = load_tokenizer(bundle)
        self._directions = directions_of(manifest)
        self._suffix = manifest.source_suffix

    def source_ids(self, languages: tuple[str, str], text: str) -> tuple[int, ...]:
        """Returns the source ids of a text, given source and target language."""
        direction = self._directions.find(*languages)
        prefix = () if direction is None else direction.source_prefix
        return (*prefix, *self._tokenizer.encode(text), *self._suffix)


class Stepper(Protocol):
    """A model with the state of one batch. B rows, V vocabulary."""

    @property
    def bos_id(self) -> int:
        """The first token of every translation."""

    @property
    def max_target_tokens(self) -> int:
        """The maximum number of steps."""

    def start(self, sources: Sequence[tuple[int, ...]]) -> None:
        """Encodes B sources; discards the previous ones."""

    def step(self, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Reads the last token of each row, int64 [B]; returns logits, float32 [B, V], valid until the next step."""


class Translator(Stepper, Protocol):
    """A stepper that also translates."""

    def translate(
        self,
        sources: Sequence[tuple[int, ...]],
        beam_size: int,
        length_penalty: float,
        advance: Callable[[int], object],
    ) -> list[Answer]:
        """Returns the best translation of each source; calls `advance` with the size of each finished batch."""


class References(NamedTuple):
    """The PyTorch model of a bundle, and the one rounded like its graphs; None if they do not round."""

    trained: Translator
    rounded: Stepper | None


def gap_of(stepper: Stepper) -> Gap:
    """Returns a function that computes the lead of a model's best logit; a small lead is a near tie."""

    def gap(source_ids: tuple[int, ...], target_ids: tuple[int, ...]) -> float:
        stepper.start([source_ids])
        read = (stepper.bos_id, *target_ids)[: stepper.max_target_tokens]
        logits = [stepper.step(np.array([token_id])).copy() for token_id in read][-1][0]  # [V]
        second, best = np.partition(logits, -2)[-2:]
        return float(best - second)

    return gap
