"""Multilingual checkpoints of Hugging Face, written by its library, and what it generates.

The weights are random and such that different sources have different translations, or trained.
"""

import io
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import ctranslate2
import sentencepiece
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
from tests.support.marian import WORDS, fill, make_texts, pieces_of, translate_words
from tests.support.training import train

PAD_ID, EOS_ID = 1, 2
FIRST = ["<s>", "<pad>", "</s>", "<unk>"]
SMALL: dict[str, Any] = {
    "d_model": 64,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 64,
    "scale_embedding": True,
    "dropout": 0.0,
}


@cache
def shared_pieces(kind: str = "unigram") -> bytes:
    """Returns a SentencePiece model of both sides, with the special tokens of fairseq."""
    texts = make_texts(1, 200)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((*texts, *map(translate_words, texts))),
        model_writer=model,
        model_type=kind,
        vocab_size=90,
        hard_vocab_limit=kind == "bpe",
        unk_id=0,
        bos_id=1,
        eos_id=2,
        minloglevel=2,
    )
    return model.getvalue()


def shuffle_weights(model: Any, seed: int) -> None:
    """Gives every parameter random values that make the output depend on the whole source."""
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.xavier_normal_(parameter, gain=2.0)
        else:
            nn.init.normal_(parameter, std=1.0 if name.endswith(("norm.weight", "layernorm_embedding.weight")) else 0.1)
    nn.init.normal_(model.get_input_embeddings().weight, std=0.2)


def random_model(kind: type[Any], config: Any, seed: int) -> Any:
    model = kind(config)
    shuffle_weights(model, seed)
    special = {"pad_token_id": PAD_ID, "eos_token_id": EOS_ID, "decoder_start_token_id": EOS_ID}
    model.generation_config = GenerationConfig(max_length=200, num_beams=5, **special)
    return model.eval()


def random_m2m100(vocabulary_size: int, seed: int = 3, **options: Any) -> Any:
    """Returns a model of M2M100's form."""
    config = M2M100Config(vocab_size=vocabulary_size, **{**SMALL, **options})
    return random_model(M2M100ForConditionalGeneration, config, seed)


def write_files(folder: Path, model: Any, pieces: bytes, settings: dict[str, Any]) -> None:
    """Writes a checkpoint with its library, a SentencePiece model and the configuration of the tokenizer."""
    model.save_pretrained(folder)
    (folder / "sentencepiece.bpe.model").write_bytes(pieces)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_m2m100(folder: Path, seed: int = 3, *, settings: dict[str, Any] | None = None, **options: Any) -> Any:
    """Writes a checkpoint of M2M100's form into a folder and returns its model."""
    pieces = [*FIRST, *reversed(pieces_of(shared_pieces())[3:])]  # an order of its own
    model = random_m2m100(len(pieces) + len(M2M100_LANGUAGES) + 8, seed, **options)
    write_files(folder, model, shared_pieces(), settings or {"tokenizer_class": "M2M100Tokenizer"})
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    return model


def write_small100(folder: Path, seed: int = 3) -> Any:
    """Writes a checkpoint of SMaLL-100's form into a folder and returns its model."""
    return write_m2m100(folder, seed, settings={"tokenizer_class": "SMALL100Tokenizer"}, decoder_layers=3)


def write_nllb(folder: Path, seed: int = 3, **options: Any) -> Any:
    """Writes a checkpoint of NLLB's form into a folder and returns its model."""
    pieces = shared_pieces("bpe")
    model = random_m2m100(len(FIRST) + len(pieces_of(pieces)) - 3 + len(flores_codes()) + 3, seed, **options)
    write_files(folder, model, pieces, {"tokenizer_class": "NllbTokenizer"})
    return model


def write_mbart50(folder: Path, seed: int = 3, **options: Any) -> Any:
    """Writes a checkpoint of mBART-50's form into a folder and returns its model."""
    size = len(FIRST) + len(pieces_of(shared_pieces())) - 3 + len(MBART50_TOKENS) + 1
    fields: dict[str, Any] = {
        **SMALL,
        "normalize_before": True,
        "normalize_embedding": True,
        "add_final_layer_norm": True,
        "activation_function": "relu",
        "decoder_start_token_id": EOS_ID,
        "forced_eos_token_id": EOS_ID,
        "tokenizer_class": "MBart50Tokenizer",
    }
    config = MBartConfig(vocab_size=size, **{**fields, **options})
    model = random_model(MBartForConditionalGeneration, config, seed)
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


@torch.inference_mode()
def generate(
    model: Any,
    sources: Sequence[Sequence[int]],
    beam_size: int,
    limit: int,
    start: Sequence[int],
    *,
    special: tuple[int, int] = (PAD_ID, EOS_ID),
) -> list[tuple[int, ...]]:
    """Returns the translations of `transformers` without special tokens; `start` is the forced language token.

    `special` are the tokens for padding and for the end. The settings make its search equal to ours; see
    `tests.support.marian.generate`.
    """
    pad_id, eos_id = special
    source = fill(sources, pad_id)
    options: dict[str, Any] = {"early_stopping": True, "length_penalty": 1.0} if beam_size > 1 else {}
    found = model.generate(
        input_ids=source,
        attention_mask=source != pad_id,
        num_beams=beam_size,
        max_length=limit + 1 + len(start),
        forced_bos_token_id=start[0] if start else None,
        forced_eos_token_id=None,
        do_sample=False,
        **options,
    )
    rows = found[:, 1 + len(start) :].tolist()
    # A random model also generates the padding token, so padding ends nothing.
    return [tuple(row[: row.index(eos_id)] if eos_id in row else row) for row in rows]


def convert(
    model: Any, pieces: Sequence[str], folder: Path, *, start: str, bos: str, quantization: str | None = None
) -> None:
    """Converts a model to CTranslate2's format. Its converter cannot read the tokenizer of a random vocabulary."""
    loader = _MODEL_LOADERS[type(model.config).__name__]
    spec = loader.get_model_spec(model)
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
    """Writes a model in CTranslate2's format, with its SentencePiece model."""
    convert(model, pieces, folder, start="</s>", bos="<s>", quantization=quantization)
    (folder / "sentencepiece.bpe.model").write_bytes(shared_pieces())


def translate(
    folder: Path,
    sources: Sequence[Sequence[str]],
    beam_size: int,
    limit: int,
    start: Sequence[str],
    *,
    shortest: int = 1,
) -> list[list[str]]:
    """Returns the translations of CTranslate2 in float32 without the start tokens."""
    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    results = translator.translate_batch(
        [list(pieces) for pieces in sources],
        target_prefix=[list(start) for _ in sources],
        beam_size=beam_size,
        max_decoding_length=limit + len(start),
        min_decoding_length=shortest,
        length_penalty=1.0,
    )
    return [result.hypotheses[0][len(start) :] for result in results]
