"""What an evaluation found: the scores of one direction, and all of them as a table for people or JSON for programs.

Knows translations and references, and nothing of where they come from. Called by `dragoman evaluate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from model.data.corpus import Corpus
from model.literature import measure_as_literature
from model.score import Quality, score
from model.scoring import Measure, measure
from model.text_table import format_table


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The scores of one direction.

    Attributes:
        source_language: ISO 639-1 code.
        target_language: ISO 639-1 code.
        sentences: how many were translated.
        measures: the metrics with confidence intervals, by name.
        system: all scores of the system.
        baseline: all scores of the baseline, if there is one.
    """

    source_language: str
    target_language: str
    sentences: int
    measures: dict[str, Measure]
    system: Quality
    baseline: Quality | None

    @property
    def direction(self) -> str:
        """As in `en-de`."""
        return f"{self.source_language}-{self.target_language}"


def evaluate(
    corpus: Corpus, translations: Sequence[str], baseline: Sequence[str] | None, *, literature: bool
) -> Evaluation:
    """Scores the translations of a corpus.

    Args:
        corpus: sources and references.
        translations: of the system, one for each source.
        baseline: of the baseline, one for each source.
        literature: whether BLEU as the literature reports it is measured as well.
    """
    references = corpus.targets
    measures = {
        "BLEU": measure(BLEU(), translations, references, baseline),
        "chrF": measure(CHRF(), translations, references, baseline),
    }
    if literature:
        language = corpus.target_language
        measures["literature BLEU"] = measure_as_literature(translations, references, language, baseline)
    return Evaluation(
        corpus.source_language,
        corpus.target_language,
        len(corpus),
        measures,
        score(translations, references),
        None if baseline is None else score(baseline, references),
    )


def format_evaluations(evaluations: Sequence[Evaluation]) -> str:
    """Returns a table with a row for each direction and system, and the signatures of its metrics below."""
    compared = evaluations[0].baseline is not None
    heading = ["direction", *(["system"] if compared else []), "sentences"]
    for name in evaluations[0].measures:
        heading += [name, *(["p"] if compared else [])]
    rows = [[*heading, "exact", "length"]]
    for evaluation in evaluations:
        rows += _rows(evaluation)
    signatures = [[name, measured.signature] for name, measured in evaluations[0].measures.items()]
    return f"{format_table(rows, 2 if compared else 1)}\n\n{format_table(signatures, 2)}"


def _rows(evaluation: Evaluation) -> list[list[str]]:
    start, end = [evaluation.direction], [str(evaluation.sentences)]
    measures = evaluation.measures.values()
    if evaluation.baseline is None:
        return [start + end + [str(measured.system) for measured in measures] + _shares(evaluation.system)]
    ours = [cell for measured in measures for cell in (str(measured.system), f"{measured.p_value:.3f}")]
    theirs = [cell for measured in measures for cell in (str(measured.baseline), "")]
    return [
        [*start, "system", *end, *ours, *_shares(evaluation.system)],
        [*start, "baseline", *end, *theirs, *_shares(evaluation.baseline)],
    ]


def _shares(quality: Quality) -> list[str]:
    return [f"{quality.exact:.2%}", f"{quality.length_ratio:.3f}"]
