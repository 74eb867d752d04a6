"""Describes the shortlist of a bundle: its size, its measurement, and the arithmetic that it saves."""

from collections.abc import Iterable
from math import prod

from dragoman.export.inspect.native_step import Block
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import Manifest


def count_shortlist(bundle: Bundle) -> int:
    """Returns the number of target tokens of all entries; 0: there is no shortlist."""
    shortlist = bundle.shortlist()
    return 0 if shortlist is None else int(shortlist.offsets[-1])


def describe_shortlist(manifest: Manifest, ids: int, step: Iterable[Block]) -> str:
    """Returns one line; `ids` is the number of tokens of all entries."""
    spec = manifest.shortlist
    if spec is None:
        return "none"
    text = f"{'on' if spec.default else 'off'} by default; {spec.frequent:,} frequent tokens, up to {spec.best:,} per "
    text += f"source token, {ids:,} in total; "
    if not spec.sentences:
        return text + "not measured: run `dragoman shortlist`"
    saved = 1 - spec.candidates / manifest.vocabulary_size
    return (
        f"{text}{spec.candidates:,.0f} candidates per sentence, which saves {saved * _projection_share(step):.0%} of "
        f"the multiply-adds of a decoder step; recall {spec.recall:.2%}, BLEU {spec.bleu:+.2f}, chrF {spec.chrf:+.2f},"
        f" {spec.equal:.1%} of {spec.sentences:,} translations equal"
    )


def _projection_share(step: Iterable[Block]) -> float:
    """Returns the share of the output projection in the products of a step with weights; embeddings are looked up."""
    products = [(block.title, sum(prod(matrix.shape) for matrix in block.matrices)) for block in step]
    total = sum(count for title, count in products if title != "embedding")
    return sum(count for title, count in products if title == "projection") / total
