"""BLEU as papers on Multi30k report it: on lowercased, punctuation-normalised text in Moses' tokens.

Such a score is comparable with theirs and not with sacreBLEU's on the text as it is. With these steps the references
of the test set of 2016 have exactly the published numbers of tokens. Called by `dragoman evaluate`.
"""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version

from sacrebleu.metrics.bleu import BLEU
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from model.scoring import Measure, measure


def measure_as_literature(
    translations: Sequence[str], references: Sequence[str], language: str, baseline: Sequence[str] | None = None
) -> Measure:
    """Measures BLEU as the literature does; arguments as those of `model.scoring.measure`.

    `language` is the ISO 639-1 code of the references' language. The signature tells of the preparation too.
    """
    ours, theirs = (tokenize_as_literature(lines, language) for lines in (translations, references))
    others = None if baseline is None else tokenize_as_literature(baseline, language)
    measured = measure(BLEU(tokenize="none", force=True), ours, theirs, others)
    preparation = f"prepared:lowercase+moses_normalize+moses_tokenize|sacremoses:{version('sacremoses')}"
    return replace(measured, signature=f"{measured.signature}|{preparation}")


def tokenize_as_literature(lines: Sequence[str], language: str) -> list[str]:
    """Returns each line lowercased, its punctuation normalised, its tokens separated by spaces."""
    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower().strip()), escape=True, return_str=True) for line in lines
    ]
