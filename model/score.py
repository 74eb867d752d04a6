"""How good translations are, against one reference each: BLEU, chrF, exact matches and length, by sacreBLEU.

On the text as it is: cased and detokenised, as sacreBLEU expects it. Knows nothing of where translations come from, and
no chance: `model.scoring` tells how sure a score is. Called by validation in training and by `dragoman
evaluate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


@dataclass(frozen=True, slots=True)
class Quality:
    """Scores of a set of translations.

    Attributes:
        bleu: BLEU (Papineni et al. 2002), 0 to 100.
        chrf: chrF (Popovic 2015), 0 to 100.
        exact: share of the translations that equal their reference in every character, 0 to 1.
        length_ratio: tokens of all translations over tokens of all references, in BLEU's tokens; below 1, BLEU's
            brevity penalty applies.
    """

    bleu: float
    chrf: float
    exact: float
    length_ratio: float


def score(translations: Sequence[str], references: Sequence[str]) -> Quality:
    """Scores translations against as many references, at least one."""
    bleu = BLEU().corpus_score(translations, [references])
    chrf = CHRF().corpus_score(translations, [references])
    exact = sum(ours == theirs for ours, theirs in zip(translations, references, strict=True)) / len(references)
    return Quality(bleu.score, chrf.score, exact, bleu.ratio)
