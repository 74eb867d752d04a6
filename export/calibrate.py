"""`dragoman calibrate`: sets the limit of low confidence of a bundle by translations with references."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import Field
from pydantic_settings import SettingsConfigDict
from sacrebleu.metrics.chrf import CHRF

from dragoman.export.held_out import MIN_PAIRS, HeldOutCommand, translate_corpus
from dragoman.model.data.corpus import Corpus, read_corpora
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import LOW_DEVIATIONS, Confidence
from dragoman.serve.local.translator import LocalTranslator
from dragoman.serve.translation.response import Translation


class CalibrateCommand(HeldOutCommand):
    """Sets the limit of low confidence of a bundle by sentence pairs that its model has not learned.

    Translates as the bundle's server does. A translation is good if its chrF (Popovic 2015) reaches --good. The
    limit becomes the highest mean log-probability per token below which at most --share of the translations are good.
    Prints what the flag means for these pairs, and writes the limit into the manifest. Until then, an exported bundle
    has the limit that follows from its sample sentences.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_CALIBRATE_", frozen=True, extra="forbid")

    good: float = Field(60.0, gt=0, le=100, description="chrF of a good translation")
    share: float = Field(0.2, ge=0, lt=1, description="highest share of good translations among the flagged ones")

    def cli_cmd(self) -> None:
        """Translates, chooses the limit and writes it."""
        bundle = Bundle.open(self.bundle)
        corpora = read_corpora(self.data, self.split, self.multi30k_folder)
        pairs = sum(map(len, corpora))
        if pairs < MIN_PAIRS:
            raise SystemExit(f"dragoman calibrate: data: expected at least {MIN_PAIRS} pairs, got {pairs}")
        translations = asyncio.run(_translate(self.bundle, corpora))
        references = [reference for corpus in corpora for reference in corpus.targets]
        chrf = CHRF()
        scored = zip(translations, references, strict=True)
        good = np.array(
            [chrf.sentence_score(found.text, [reference]).score >= self.good for found, reference in scored]
        )
        log_probabilities = np.array([mean_log_probability(translation) for translation in translations])
        limit = lowest_confident(log_probabilities, good, self.share)
        mean = min(0.0, float(log_probabilities.mean()))
        confidence = Confidence(mean=mean, deviation=max(0.0, (mean - limit) / LOW_DEVIATIONS))
        flagged = log_probabilities < confidence.least
        print(
            f"{flagged.sum():,} of {len(good):,} translations have low confidence: {_share(good[flagged])} of them are"
            f" good, and {_share(good[~flagged])} of the others"
        )
        self.write(bundle.manifest.model_copy(update={"confidence": confidence}))


def mean_log_probability(translation: Translation) -> float:
    """Returns the mean log-probability per token of a translation, end tokens included."""
    return translation.score / (translation.target_tokens + translation.sentences)


def lowest_confident(log_probabilities: np.ndarray, good: np.ndarray, share: float) -> float:
    """Returns the highest limit with at most a `share` of the good translations below it, 0 to 1.

    Both arrays are [N]: the log-probabilities of translations, and whether each is good.
    """
    order = np.argsort(log_probabilities, kind="stable")
    # Entry k - 1: the share among the k lowest ones, which are below number k.
    shares = np.cumsum(good[order[:-1]]) / np.arange(1, len(order))  # [N - 1]
    (few,) = np.nonzero(shares <= share)
    return float(log_probabilities[order[few[-1] + 1 if len(few) else 0]])


async def _translate(bundle: Path, corpora: Sequence[Corpus]) -> list[Translation]:
    async with LocalTranslator(bundle) as translator:
        return [translation for corpus in corpora for translation in await translate_corpus(translator, corpus)]


def _share(good: np.ndarray) -> str:
    return f"{good.mean():.0%}" if len(good) else "none"
