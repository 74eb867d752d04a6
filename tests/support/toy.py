"""Models for tests: one that learns a toy language in seconds, and random ones.

In the toy language every source word has one translation and the order stays, so the correct translation is known. A
random model shows rare behavior: it ends at once, late or never.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.onnx._internal.exporter._registration import ONNXRegistry

from dragoman.export.make_bundle import BundleOptions, write_bundle
from dragoman.export.source_model import Exportable
from dragoman.model.config import Direction, RunConfig, TokenizerConfig, TrainingConfig, TransformerConfig
from dragoman.model.data.cleaning import TrainingData, clean
from dragoman.model.data.corpus import read_corpus
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import RunFolder, TrainedModel
from dragoman.model.samples import Sample
from dragoman.model.tokenizer.tokenizer import EOS_ID, PAD_ID, Tokenizer
from dragoman.model.training.module import TranslationModule
from dragoman.model.training.train import train
from dragoman.serve.bundle.bundle import WEIGHTS_FILE, Bundle
from dragoman.serve.bundle.manifest import AttentionHead, Precision
from tests.support.bundles import reseal
from tests.support.cases import cases
from tests.support.small_models import randomize

# The exporter lists its operators anew for every graph, which takes most of a second.
ONNXRegistry.from_torchlib = staticmethod(cache(ONNXRegistry.from_torchlib))  # type: ignore[method-assign]
# `random_ids` chooses from so many ids.
VOCABULARY = 40
TOY: dict[str, Any] = cases(__file__)
WORDS: dict[str, str] = TOY["words"]
# Returns the bundle of the toy model in a precision.
ToyBundles = Callable[[Precision], Path]
# A shape at which matrix products take different paths for one row and for many.
WIDE = {"d_model": 256, "d_ff": 1024, "heads": 4, "encoder_layers": 2, "decoder_layers": 2}
WIDE |= {"max_source_tokens": 40, "max_target_tokens": 24}
DEEP = {**WIDE, "encoder_layers": 1, "decoder_layers": 3}
OPTIONS: dict[str, dict[str, Any]] = TOY["options"]

# Sources for random models, with arbitrary translations.
RANDOM_TEXTS = ("alpha beta", "one two three gamma", "house", "garden river delta", "two", "beta house")
TWO_WAYS = (Direction(source="en", target="de"), Direction(source="de", target="en"))

SENTENCES = 2600
TEST_SENTENCES = 600

TOY_CONFIG = RunConfig(
    directions=(Direction(source="en", target="de"),),
    model=TransformerConfig(
        d_model=64,
        d_ff=128,
        heads=4,
        encoder_layers=1,
        decoder_layers=1,
        dropout=0.0,
        max_source_tokens=32,
        max_target_tokens=24,
    ),
    tokenizer=TokenizerConfig(vocabulary_size=100),
    training=TrainingConfig(
        max_steps=450, batch_tokens=400, learning_rate=0.0075, warmup_steps=100, validation_every_steps=150, seed=3
    ),
)


def translate_toy(sentence: str) -> str:
    return " ".join(WORDS[word] for word in sentence.split())


@cache
def toy_sentences() -> tuple[str, ...]:
    """Returns different sentences of 2 to 7 words, always the same; the last TEST_SENTENCES are for tests."""
    random, words = np.random.default_rng(7), np.array([*WORDS])
    sentences: dict[str, None] = {}
    while len(sentences) < SENTENCES:
        sentences[" ".join(random.choice(words, size=random.integers(2, 8)))] = None
    return tuple(sentences)


def toy_test_sentences() -> tuple[str, ...]:
    return toy_sentences()[-TEST_SENTENCES:]


def write_pairs(
    folder: Path, name: str, sentences: Sequence[str], translate: Callable[[str], str] = translate_toy
) -> str:
    """Writes sentences and their translations as two files; returns their data specification."""
    source, target = folder / f"{name}.en", folder / f"{name}.de"
    source.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    target.write_text("".join(f"{translate(sentence)}\n" for sentence in sentences), encoding="utf-8")
    return f"files:{source},{target}"


def train_toy(folder: Path) -> RunFolder:
    """Trains a toy model into a folder, next to its data: `train.en`, `train.de`, `test.en` and `test.de`."""
    training = read_corpus(write_pairs(folder, "train", toy_sentences()[:-TEST_SENTENCES]))
    held_out = read_corpus(write_pairs(folder, "test", toy_test_sentences()))
    run = RunFolder(folder / "run")
    train(run, TOY_CONFIG, TrainingData([clean(training, TOY_CONFIG.cleaning)], [held_out.select(range(100))]))
    return run


def fail_once(patch: pytest.MonkeyPatch, method: str, call: int) -> None:
    """Makes a method of the training module fail at one call, counted from 1."""
    step = getattr(TranslationModule, method)
    calls: list[int] = []

    def step_or_fail(*arguments: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == call:
            raise RuntimeError("out of memory")
        return step(*arguments)

    patch.setattr(TranslationModule, method, step_or_fail)


def random_model(seed: int, vocabulary_size: int = 12, **options: Any) -> Transformer:
    """Returns a tiny untrained model, unless options differ, with different translations of different sources."""
    sizes = {"d_model": 32, "d_ff": 64, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    limits = {"max_source_tokens": 12, "max_target_tokens": 9}
    torch.manual_seed(seed)
    model = Transformer(TransformerConfig.model_validate({**sizes, **limits, **options}), vocabulary_size, PAD_ID)
    randomize(model.named_parameters())
    for weight in dict.fromkeys((model.source_weight, model.target_weight, model.output_weight)):
        nn.init.normal_(weight, std=0.2)
    return model.eval()


def random_ids(rows: int, length: int, seed: int = 1) -> Tensor:
    """Returns ids without padding, int64 [rows, length]."""
    return torch.randint(EOS_ID, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def ragged_ids(lengths: list[int], seed: int = 1) -> Tensor:
    """Returns right-padded rows of ids with given lengths, int64 [rows, longest]."""
    ids = random_ids(len(lengths), max(lengths), seed)
    return ids.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], PAD_ID)


def random_sources(model: Transformer, seed: int, count: int) -> list[list[int]]:
    """Returns sources of every length that the model accepts, each with EOS."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, model.config.max_source_tokens, size=count)
    return [[*random.integers(4, model.embedding.num_embeddings, size=length).tolist(), EOS_ID] for length in lengths]


def samples_of(texts: Iterable[str], directions: Iterable[Direction] = TOY_CONFIG.directions) -> list[Sample]:
    listed = list(texts)
    return [Sample(direction, text) for direction in directions for text in listed]


RANDOM_BUNDLE = BundleOptions("random")


def export_model(
    model: Transformer,
    tokenizer: Tokenizer,
    out: Path,
    directions: tuple[Direction, ...] = TOY_CONFIG.directions,
    options: BundleOptions = RANDOM_BUNDLE,
) -> Bundle:
    """Exports a random model with the vocabulary of a tokenizer; its golden sentences are its own translations."""
    trained = TrainedModel(RunConfig(directions=directions, model=model.limits), tokenizer, model, steps=0)
    return export_run(trained, samples_of(RANDOM_TEXTS, directions), out, options)


def export_run(trained: TrainedModel, samples: list[Sample], out: Path, options: BundleOptions) -> Bundle:
    return write_bundle(Exportable.of_run(trained), samples, out, options)


def export_for_cuda(
    model: Transformer, tokenizer: Tokenizer, out: Path, heads: tuple[AttentionHead, ...] = ()
) -> Bundle:
    """Exports a Transformer for GPUs in fp32, which ONNX Runtime computes on a CPU as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dragoman.export.graphs.export_model.check_options", lambda *_: None)
        return export_model(model, tokenizer, out, options=BundleOptions("states", "cuda", "fp32", heads))


def write_two_way_run(folder: Path, tokenizer: Tokenizer) -> RunFolder:
    model = random_model(4, tokenizer.vocabulary_size, max_source_tokens=20)
    config = RunConfig(directions=TWO_WAYS, model=model.config)
    run = RunFolder(folder)
    run.config.write_text(config.to_yaml(), encoding="utf-8")
    run.tokenizer.write_bytes(tokenizer.model)
    run.samples.write_text(
        "".join(f"{way.source}\t{way.target}\t{text}\n" for way in TWO_WAYS for text in RANDOM_TEXTS), encoding="utf-8"
    )
    run.best_checkpoint.parent.mkdir()
    parameters = {f"model.{name}": parameter for name, parameter in model.state_dict().items()}
    torch.save({"state_dict": parameters, "global_step": 0}, run.best_checkpoint)
    return run


def spoil_bundle(bundle: Path, out: Path) -> Path:
    """Copies a bundle, negates its weights and updates the hashes in the manifest."""
    copytree(bundle, out)
    np.negative(np.fromfile(out / WEIGHTS_FILE, np.float32)).tofile(out / WEIGHTS_FILE)
    return reseal(out)
