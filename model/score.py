"""`dragoman score`: how good translations are, against references: BLEU, chrF and exact matches, by sacreBLEU."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from model.corpus import CorpusError, read_lines


class ScoreCommand(BaseSettings):
    """Measures translations against references, line by line.

    Prints BLEU (Papineni et al. 2002) and chrF (Popovic 2015) of sacreBLEU with their signatures, on the text as it is
    (cased, detokenised), and the share of lines that equal their reference exactly.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_SCORE_", frozen=True, extra="forbid")

    translations: CliPositionalArg[Path] = Field(description="translations, one a line, plain or .gz")
    references: CliPositionalArg[Path] = Field(description="references, one a line, plain or .gz")
    minimum_exact: float = Field(0.0, ge=0, le=1, description="exit with 1 if fewer lines are exact than this share")

    def cli_cmd(self) -> None:
        """Scores; prints one metric a line."""
        try:
            translations, references = read_lines(self.translations), read_lines(self.references)
        except CorpusError as error:
            raise SystemExit(f"dragoman score: {error}") from error
        if len(translations) != len(references):
            raise SystemExit(
                f"dragoman score: references: {len(references)} lines, expected {len(translations)} as in translations"
            )
        if not references:
            raise SystemExit("dragoman score: references: no line, expected at least one")
        quality = score(translations, references)
        print(f"BLEU {quality.bleu:.2f}  {quality.bleu_signature}")
        print(f"chrF {quality.chrf:.2f}  {quality.chrf_signature}")
        print(f"exact {quality.exact:.2%}  of {len(references)} lines")
        if quality.exact < self.minimum_exact:
            raise SystemExit(f"dragoman score: fewer than {self.minimum_exact:.2%} are exact")


@dataclass(frozen=True, slots=True)
class Quality:
    """Scores of a set of translations; BLEU and chrF from 0 to 100, `exact` from 0 to 1."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact: float


def score(translations: list[str], references: list[str]) -> Quality:
    """Scores as many translations as references."""
    bleu, chrf = BLEU(), CHRF()
    bleu_score = bleu.corpus_score(translations, [references]).score
    chrf_score = chrf.corpus_score(translations, [references]).score
    exact = sum(ours == theirs for ours, theirs in zip(translations, references, strict=True)) / len(references)
    return Quality(bleu_score, str(bleu.get_signature()), chrf_score, str(chrf.get_signature()), exact)
