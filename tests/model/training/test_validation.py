"""Validation logs BLEU and chrF of the model's own greedy translations."""

from typing import Any

import pytest

from dragoman.model.data.corpus import Corpus
from dragoman.model.data.segmentation import Segmentation
from dragoman.model.run import RunFolder
from dragoman.model.scoring import Quality, score
from dragoman.model.search import generate_greedy
from dragoman.model.tokenizer.tokenizer import EOS_ID
from dragoman.model.training import trainer as module
from dragoman.model.training.trainer import ValidationTranslation
from tests.support.toy import toy_test_sentences, translate_toy

SENTENCES = list(toy_test_sentences()[:60])
REFERENCES = [translate_toy(sentence) for sentence in SENTENCES[:40]] + SENTENCES[40:]


class Recorder:
    """A stand-in for the training module: holds the model and records logged values."""

    def __init__(self, model: object) -> None:
        self.model = model
        self.logged: dict[str, float] = {}

    def log_dict(self, metrics: dict[str, float], **_: Any) -> None:
        self.logged |= metrics


def validate(run: RunFolder, corpora: list[Corpus]) -> dict[str, float]:
    trained = run.load()
    callback = ValidationTranslation(Segmentation(trained.tokenizer, trained.config, corpora))
    recorder = Recorder(trained.model)
    callback.on_validation_epoch_end(None, recorder)
    return recorder.logged


def test_what_is_logged_is_the_quality_of_greedy_translations(toy_run: RunFolder) -> None:
    trained = toy_run.load()
    answers = generate_greedy(trained.model, [[*trained.tokenizer.encode(sentence), EOS_ID] for sentence in SENTENCES])
    expected = score([trained.tokenizer.decode(answer.target_ids) for answer in answers], REFERENCES)
    logged = validate(toy_run, [Corpus("en", "de", SENTENCES, REFERENCES)])
    assert logged == {"validation_bleu": expected.bleu, "validation_chrf": expected.chrf}
    assert 30 < expected.bleu < 90


def test_translations_are_scored_in_tokens_of_the_language(toy_run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []

    def record(translations: list[str], references: list[str], languages: list[str]) -> Quality:
        given.append(languages)
        return score(translations, references, languages)

    monkeypatch.setattr(module, "score", record)
    validate(toy_run, [Corpus("en", "de", SENTENCES[:2], REFERENCES[:2])])
    assert given == [["de", "de"]]


def test_a_large_set_is_thinned_out_evenly(toy_run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SENTENCES", 20)
    thinned = validate(toy_run, [Corpus("en", "de", SENTENCES, REFERENCES)])
    assert thinned == validate(toy_run, [Corpus("en", "de", SENTENCES[::3], REFERENCES[::3])])


def test_sentences_that_are_too_long_are_left_out(toy_run: RunFolder) -> None:
    long = " ".join(["bird"] * 100)
    with_long = validate(toy_run, [Corpus("en", "de", [*SENTENCES, long], [*REFERENCES, long])])
    assert with_long == validate(toy_run, [Corpus("en", "de", SENTENCES, REFERENCES)])
