"""The models of PyTorch and ONNX Runtime that are compared step by step, and the bundle's text reader."""

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dragoman.export.answer import Gap
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.directions import directions_of
from dragoman.serve.bundle.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from dragoman.export.graph_decoder import GraphDecoder
    from dragoman.export.verify.reference import Reference


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


Stepper: TypeAlias = "Reference | GraphDecoder"


def gap_of(stepper: Stepper) -> Gap:
    """Returns a function that computes the lead of a model's best logit; a small lead is a near tie."""

    def gap(source_ids: tuple[int, ...], target_ids: tuple[int, ...]) -> float:
        stepper.start([source_ids])
        read = (stepper.bos_id, *target_ids)[: stepper.max_target_tokens]
        logits = [stepper.step(np.array([token_id])).copy() for token_id in read][-1][0]  # [V]
        second, best = np.partition(logits, -2)[-2:]
        return float(best - second)

    return gap
