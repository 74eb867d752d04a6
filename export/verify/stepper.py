"""A model seen step by step: sources in, then token by token the logits of the next one.

PyTorch and ONNX Runtime are compared through it, each with its own module.

How a bundle reads texts: what its tokenizer makes of them, between the tokens that its manifest asks for.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from export.verify.answer import Answer, Gap
from serve.bundle.bundle import Bundle
from serve.bundle.tokenizer import load_tokenizer


class Reader:
    """Turns texts into source ids."""

    def __init__(self, bundle: Bundle) -> None:
        """Loads the tokenizer.

        Raises:
            TokenizerError: if its files are not what the manifest says that they are.
        """
        manifest = bundle.manifest
        self._tokenizer = load_tokenizer(bundle)
        self._prefixes = {(each.source, each.target): each.source_prefix for each in manifest.directions}
        self._suffix = manifest.source_suffix

    def source_ids(self, languages: tuple[str, str], text: str) -> tuple[int, ...]:
        """Returns what the model reads of a text, given its language and that of the translation."""
        return (*self._prefixes[languages], *self._tokenizer.encode(text), *self._suffix)


class Stepper(Protocol):
    """A model with the state of one batch. B rows, V vocabulary."""

    @property
    def bos_id(self) -> int:
        """The token that every translation starts from."""

    @property
    def max_target_tokens(self) -> int:
        """The most steps."""

    def start(self, sources: Sequence[tuple[int, ...]]) -> None:
        """Reads B sources, and forgets those before."""

    def step(self, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Reads the last token of each row, int64 [B]; returns logits, float32 [B, V], valid until the next step."""


class Translator(Stepper, Protocol):
    """A model that also translates."""

    def translate(
        self,
        sources: Sequence[tuple[int, ...]],
        beam_size: int,
        length_penalty: float,
        advance: Callable[[int], object],
    ) -> list[Answer]:
        """Returns the best translation of each source; calls `advance` with the size of each batch that is done."""


class References(NamedTuple):
    """What a bundle is compared with.

    Attributes:
        trained: the model that it was made from.
        rounded: the same, rounded as the bundle's graphs round it; None if they do not.
    """

    trained: Translator
    rounded: Stepper | None


def gap_of(stepper: Stepper) -> Gap:
    """Returns what tells a near tie from a wrong graph: the lead of a model's best logit over the second best."""

    def gap(source_ids: tuple[int, ...], target_ids: tuple[int, ...]) -> float:
        stepper.start([source_ids])
        read = (stepper.bos_id, *target_ids)[: stepper.max_target_tokens]
        logits = [stepper.step(np.array([token_id])).copy() for token_id in read][-1][0]  # [V]
        second, best = np.partition(logits, -2)[-2:]
        return float(best - second)

    return gap
