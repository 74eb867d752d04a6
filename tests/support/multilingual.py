"""Multilingual checkpoints of Hugging Face, written by its library, and what it generates.

The weights are random and such that different sources have different translations, or trained.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from ctranslate2.converters.transformers import _MODEL_LOADERS
from torch import nn
from transformers import (
    GenerationConfig,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
)

from dragoman.export.imports.common import ImportOptions
from dragoman.export.imports.hugging_face import import_checkpoint
from dragoman.export.imports.multilingual import M2M100_LANGUAGES, MBART50_TOKENS
from dragoman.export.source_model import find_direction
from dragoman.serve.bundle.language_codes import flores_codes
from tests.support import marian, small_models
from tests.support.marian import WORDS, make_texts, pieces_of, translate_words
from tests.support.small_models import randomize, sentencepiece_model, train

PAD_ID, EOS_ID = 1, 2
FIRST = ["<s>", "<pad>", "</s>", "<unk>"]
SMALL = {**marian.SMALL, "encoder_layers": 2, "decoder_layers": 2, "activation_function": "relu"}


@cache
def shared_pieces(kind: str = "unigram") -> bytes:
    """Returns a SentencePiece model of both sides, with the special tokens of fairseq."""
    texts = make_texts(1, 200)
    both = (*texts, *map(translate_words, texts))
    return sentencepiece_model(both, 90, model_type=kind, hard_vocab_limit=kind == "bpe", unk_id=0, bos_id=1, eos_id=2)


def shuffle_weights(model: Any, seed: int) -> None:
    """Gives every parameter random values that make the output depend on the whole source."""
    torch.manual_seed(seed)
    randomize(model.named_parameters())
    nn.init.normal_(model.get_input_embeddings().weight, std=0.2)


def random_model(kind: type[Any], config: Any, seed: int) -> Any:
    model = kind(config)
    shuffle_weights(model, seed)
    special = {"pad_token_id": PAD_ID, "eos_token_id": EOS_ID, "decoder_start_token_id": EOS_ID}
    model.generation_config = GenerationConfig(max_length=200, num_beams=5, **special)
    return model.eval()


def random_m2m100(vocabulary_size: int, seed: int = 3, **options: Any) -> Any:
    config = M2M100Config(vocab_size=vocabulary_size, **{**SMALL, **options})
    return random_model(M2M100ForConditionalGeneration, config, seed)


def write_files(folder: Path, model: Any, pieces: bytes, settings: dict[str, Any]) -> None:
    """Writes a checkpoint with its library, a SentencePiece model and the configuration of the tokenizer."""
    model.save_pretrained(folder)
    (folder / "sentencepiece.bpe.model").write_bytes(pieces)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_m2m100(folder: Path, seed: int = 3, *, settings: dict[str, Any] | None = None, **options: Any) -> Any:
    pieces = [*FIRST, *reversed(pieces_of(shared_pieces())[3:])]  # an order of its own
    model = random_m2m100(len(pieces) + len(M2M100_LANGUAGES) + 8, seed, **options)
    write_files(folder, model, shared_pieces(), settings or {"tokenizer_class": "M2M100Tokenizer"})
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    return model


def write_small100(folder: Path, seed: int = 3) -> Any:
    return write_m2m100(folder, seed, settings={"tokenizer_class": "SMALL100Tokenizer"}, decoder_layers=3)


def write_nllb(folder: Path, seed: int = 3, **options: Any) -> Any:
    pieces = shared_pieces("bpe")
    model = random_m2m100(len(FIRST) + len(pieces_of(pieces)) - 3 + len(flores_codes()) + 3, seed, **options)
    write_files(folder, model, pieces, {"tokenizer_class": "NllbTokenizer"})
    return model


def write_mbart50(folder: Path, seed: int = 3, **options: Any) -> Any:
    size = len(FIRST) + len(pieces_of(shared_pieces())) - 3 + len(MBART50_TOKENS) + 1
    fields: dict[str, Any] = {
        **SMALL,
        "normalize_before": True,
        "normalize_embedding": True,
        "add_final_layer_norm": True,
        "decoder_start_token_id": EOS_ID,
        "forced_eos_token_id": EOS_ID,
        "tokenizer_class": "MBart50Tokenizer",
    }
    model = random_model(MBartForConditionalGeneration, MBartConfig(vocab_size=size, **{**fields, **options}), seed)
    write_files(folder, model, shared_pieces(), {"tokenizer_class": "MBart50Tokenizer"})
    return model


def translate_words_otherwise(text: str) -> str:
    """Returns the translation of a text into another language, which has each word of the first for another source."""
    words = list(WORDS)
    return translate_words(" ".join(words[words.index(word) - 1] for word in text.split()))


# The same texts have different translations: only the token of the language selects them.
TASKS: dict[tuple[str, str], Callable[[str], str]] = {
    ("en", "de"): translate_words,
    ("en", "fr"): translate_words_otherwise,
}


def train_languages(folder: Path, model: Any, steps: int, seed: int = 3) -> None:
    """Trains the model of a written checkpoint to translate the words of `make_texts`, and writes its weights."""
    exportable = import_checkpoint(folder, ImportOptions())
    encode, pairs = exportable.tokenizer.encode, []
    for languages, correct in TASKS.items():
        direction = find_direction(exportable, languages)
        for text in make_texts(1, 200) + make_texts(2, 1800):
            source = exportable.source_ids(direction.source_prefix, text)
            pairs.append((source, (*direction.start, *encode(correct(text)), EOS_ID)))
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.zeros_(parameter)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
    nn.init.normal_(model.get_input_embeddings().weight, std=model.config.d_model**-0.5)
    train(model, pairs, pad_id=PAD_ID, first_id=EOS_ID, seed=seed, steps=steps, forced=len(direction.start))
    model.save_pretrained(folder)


def generate(
    model: Any,
    sources: Sequence[Sequence[int]],
    beam_size: int,
    limit: int,
    start: Sequence[int],
    *,
    special: tuple[int, int] = (PAD_ID, EOS_ID),
) -> list[tuple[int, ...]]:
    """Returns the translations of `transformers`; `special` are the tokens for padding and for the end.

    A random model also generates the padding token, so padding ends nothing.
    """
    pad_id, eos_id = special
    return small_models.generate(model, sources, beam_size, limit, start, pad_id=pad_id, end_ids=(eos_id,))


def convert(
    model: Any, pieces: Sequence[str], folder: Path, *, start: str, bos: str, quantization: str | None = None
) -> None:
    """Converts a model to CTranslate2's format. Its converter cannot read the tokenizer of a random vocabulary."""
    spec = _MODEL_LOADERS[type(model.config).__name__].get_model_spec(model)
    spec.register_source_vocabulary(list(pieces))
    spec.register_target_vocabulary(list(pieces))
    tokens = {"decoder_start_token": start, "bos_token": bos, "eos_token": "</s>", "unk_token": "<unk>"}
    for name, token in tokens.items():
        setattr(spec.config, name, token)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir()
    spec.save(str(folder))


def write_ctranslate2(model: Any, pieces: Sequence[str], folder: Path, quantization: str | None = None) -> None:
    convert(model, pieces, folder, start="</s>", bos="<s>", quantization=quantization)
    (folder / "sentencepiece.bpe.model").write_bytes(shared_pieces())
