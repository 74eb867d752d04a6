"""`Examination.translations` equals the number of translations reported to `advance`."""

from pathlib import Path

import pytest

from dragoman.export.answer import Sentence
from dragoman.export.source_model import Exportable
from dragoman.export.verify.checks import BatchMix, Check, Demands, Examination, VerificationPlan
from dragoman.export.verify.reference import references_of
from dragoman.export.verify.stepper import Reader
from dragoman.model.run import RunFolder
from dragoman.serve.bundle.bundle import Bundle
from tests.support.toy import toy_test_sentences


@pytest.mark.parametrize("precision", ["fp32", "int8", None])
@pytest.mark.parametrize("checks", [("logits",), ("tokens",), ("invariance",), ("logits", "tokens", "invariance")])
def test_the_announced_number_of_translations_is_done(
    checks: tuple[Check, ...], precision: str | None, toy_run: RunFolder, toy_bundle: Path
) -> None:
    bundle = Bundle.open(toy_bundle)
    reader = Reader(bundle)
    sentences = [Sentence(text, reader.source_ids(("en", "de"), text)) for text in toy_test_sentences()[:7]]
    model = Exportable.of_run(toy_run.load()).network
    manifest = bundle.manifest.model_copy(update={"precision": precision})
    references = None if precision is None else references_of(model, manifest)
    plan = VerificationPlan(
        checks=checks,
        sentences=5,
        invariance_sentences=3,
        beam_size=2,
        length_penalty=1.0,
        demands=Demands(0.0, 1.0),
        logits_tolerance=None,
        batch_mix=BatchMix((2, 3), 1),
    )
    examination = Examination(bundle, reader, sentences, references, plan)
    done: list[int] = []
    names = [outcome.check for outcome in examination.outcomes(done.append)]
    assert sum(done) == examination.translations
    assert {name.split(",")[0] for name in names} >= set(checks)
