"""Guided alignment makes the guided head attend to linked words, and resumes like every option."""

from pathlib import Path

import pytest

from dragoman.model.alignment.links import ReferenceLinks, alignment_quality, format_links
from dragoman.model.attention_alignment import AlignedModel, Head
from dragoman.model.config import RunConfig, TransformerConfig
from dragoman.model.data.cleaning import TrainingData, clean
from dragoman.model.data.corpus import Corpus, read_corpus
from dragoman.model.run import RunFolder
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.model.training.train import train
from tests.support.toy import TOY_CONFIG, toy_sentences, toy_test_sentences, write_pairs

GUIDED = Head(1, 0, shifted=False)


def read_linked(folder: Path, name: str, sentences: tuple[str, ...]) -> Corpus:
    """Returns toy sentences with the links of their words, which have the order of their translations."""
    specification = write_pairs(folder, name, sentences)
    links = folder / f"{name}.align"
    lines = (format_links((i, i) for i, _ in enumerate(sentence.split())) for sentence in sentences)
    links.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return read_corpus(f"{specification},{links}")


def train_with(weight: float, folder: Path, training: Corpus, held_out: Corpus) -> RunFolder:
    model = {"d_model": 32, "d_ff": 32, "heads": 2, "decoder_layers": 2, "dropout": 0.1}
    options = {"guided_alignment": weight, "max_steps": 120, "warmup_steps": 30, "subword_sampling": 0.5}
    config = RunConfig(
        directions=TOY_CONFIG.directions,
        model=TransformerConfig.model_validate({**TOY_CONFIG.model.model_dump(), **model}),
        tokenizer=TOY_CONFIG.tokenizer,
        training=TOY_CONFIG.training.model_copy(update=options),
    )
    run = RunFolder(folder)
    train(run, config, TrainingData([clean(training, config.cleaning)], [held_out.select(range(50))]))
    return run


def error_rate(run: RunFolder, corpus: Corpus) -> float:
    trained = run.load()
    (found,) = AlignedModel(trained.model, Tokenizer.load(run.tokenizer), ()).links(corpus, [GUIDED])
    return alignment_quality(found, [ReferenceLinks(links, links) for links in corpus.links]).error_rate


def test_the_guided_head_attends_to_linked_words(tmp_path: Path) -> None:
    """Without guidance, the same head is wrong several times as often."""
    training = read_linked(tmp_path, "train", toy_sentences()[:1000])
    held_out = read_linked(tmp_path, "test", toy_test_sentences()[:100])
    assert error_rate(train_with(2.0, tmp_path / "run", training, held_out), held_out) < 0.1


def test_guided_alignment_requires_links(tmp_path: Path) -> None:
    corpus = read_corpus(write_pairs(tmp_path, "train", toy_sentences()[:100]))
    with pytest.raises(SystemExit, match="guided-alignment: expected 0, or data with links"):
        train_with(1.0, tmp_path / "run", corpus, corpus)
