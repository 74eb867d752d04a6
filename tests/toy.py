"""A toy language that a tiny model learns in seconds: every source word has one translation, and the order stays.

What the toy model says is known without a model, so that a test can tell a good translation from a bad one.
"""

from functools import cache
from pathlib import Path

import numpy as np

from model.config import ModelConfig, RunConfig, TokenizerConfig, TrainingConfig
from model.corpus import Corpus, read_corpus
from model.run import RunFolder
from model.train import train

WORDS = {
    "bird": "vogel",
    "boat": "schiff",
    "bread": "brot",
    "cloud": "wolke",
    "door": "pforte",
    "field": "acker",
    "hill": "berg",
    "lamp": "licht",
    "moon": "mond",
    "road": "weg",
    "stone": "kiesel",
    "tree": "baum",
}
SENTENCES = 2600
TEST_SENTENCES = 600

TOY_CONFIG = RunConfig(
    source_language="en",
    target_language="de",
    model=ModelConfig(
        d_model=32,
        d_ff=64,
        heads=4,
        encoder_layers=1,
        decoder_layers=2,
        dropout=0.0,
        max_source_tokens=32,
        max_target_tokens=24,
    ),
    tokenizer=TokenizerConfig(vocabulary_size=100),
    training=TrainingConfig(
        max_steps=500,
        batch_tokens=600,
        learning_rate_factor=1.0,
        warmup_steps=100,
        label_smoothing=0.1,
        validation_every_steps=100,
    ),
)


def translate_toy(sentence: str) -> str:
    """Returns the one right translation of a sentence."""
    return " ".join(WORDS[word] for word in sentence.split())


@cache
def toy_sentences() -> tuple[str, ...]:
    """Returns different sentences of 2 to 7 words, always the same ones; the last TEST_SENTENCES are for testing."""
    random = np.random.default_rng(7)
    sentences: dict[str, None] = {}
    while len(sentences) < SENTENCES:
        words = random.choice(list(WORDS), size=random.integers(2, 8))
        sentences[" ".join(words)] = None
    return tuple(sentences)


def toy_test_sentences() -> tuple[str, ...]:
    """Returns the sentences that no model is trained on."""
    return toy_sentences()[-TEST_SENTENCES:]


def write_pairs(folder: Path, name: str, sentences: tuple[str, ...]) -> str:
    """Writes sentences and their translations as two files; returns their data specification."""
    source, target = folder / f"{name}.en", folder / f"{name}.de"
    source.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    target.write_text("".join(f"{translate_toy(sentence)}\n" for sentence in sentences), encoding="utf-8")
    return f"files:{source},{target}"


def train_toy(folder: Path, config: RunConfig = TOY_CONFIG) -> RunFolder:
    """Trains a toy model into a folder, beside its data."""
    training = read_corpus(write_pairs(folder, "train", toy_sentences()[:-TEST_SENTENCES]))
    held_out = read_corpus(write_pairs(folder, "test", toy_test_sentences()))
    run = RunFolder(folder / "run")
    train(run, config, training, Corpus("en", "de", held_out.sources[:100], held_out.targets[:100]))
    return run
