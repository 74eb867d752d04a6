"""A model that reads context: it learns the pronoun for the noun of the sentence before. Lines are sentences."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

from dragoman.model.config import TokenizerConfig
from dragoman.model.data.cleaning import TrainingData, clean
from dragoman.model.data.corpus import read_corpus
from dragoman.model.run import RunFolder
from dragoman.model.training.train import train
from tests.support.toy import TOY_CONFIG, write_pairs

SEPARATOR = "|"
# The translations of nouns, and of the pronoun that stands for each; without a noun, it is neuter.
NOUNS = {"lamp": ("lampe", "sie"), "door": ("pforte", "sie"), "hill": ("berg", "er"), "moon": ("mond", "er")}
WORDS = {"red": "rot", "old": "alt", "new": "neu", "good": "gut", "big": "groß"}


def pairs() -> Iterator[tuple[str, str]]:
    for (noun, (name, pronoun)), (word, translated) in product(NOUNS.items(), WORDS.items()):
        yield f"it {word}", f"es {translated}"
        yield f"{noun} {word}", f"{name} {translated}"
        for other, following in WORDS.items():
            yield f"{noun} {word} {SEPARATOR} it {other}", f"{name} {translated} {SEPARATOR} {pronoun} {following}"
        for other, (another, _) in NOUNS.items():
            yield f"{other} {word} {SEPARATOR} {noun} {word}", f"{another} {translated} {SEPARATOR} {name} {translated}"


def train_run(folder: Path) -> None:
    """Trains a model that reads one sentence of context, in seconds, into `run` of a folder with its data."""
    translations = dict(pairs())
    corpus = read_corpus(write_pairs(folder, "train", list(translations), translations.__getitem__))
    steps = {"max_steps": 200, "validation_every_steps": 200, "warmup_steps": 60}
    own = {
        "model": TOY_CONFIG.model.model_copy(update={"max_source_tokens": 8}),
        "training": TOY_CONFIG.training.model_copy(update=steps),
        "tokenizer": TokenizerConfig(kind="bpe", vocabulary_size=100),
    }
    config = TOY_CONFIG.model_copy(update=own)
    train(RunFolder(folder / "run"), config, TrainingData([clean(corpus, config.cleaning)], [corpus.select(range(20))]))
