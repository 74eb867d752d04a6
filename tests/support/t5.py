"""T5, mT5 and MADLAD-400 checkpoints of Hugging Face, written by its library with random weights."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import GenerationConfig, MT5Config, MT5ForConditionalGeneration, T5Config, T5ForConditionalGeneration

from tests.support.cases import cases
from tests.support.marian import make_texts, pieces_of, translate_words
from tests.support.multilingual import convert, shuffle_weights
from tests.support.small_models import sentencepiece_model, train

CASES = cases(__file__)

MADLAD_LANGUAGES = ("de", "en", "fr", "zh", "yue", "zh_Hant")
INSTRUCTION = "translate English to German: "
# What precedes a source from English into German.
PREFIXES = {"t5": INSTRUCTION, "t5-1.1": "", "mt5": "", "madlad": "<2de> "}
TASKS = {
    "translation_en_to_de": {"prefix": INSTRUCTION, "num_beams": 4},
    "translation_en_to_fr": {"prefix": "translate English to French: ", "num_beams": 4},
    "summarization": {"prefix": "summarize: "},
}
# Widths of heads that do not add up to that of the model, as in T5 1.1 and MADLAD-400.
SMALL: dict[str, Any] = CASES["widths"]


@cache
def t5_pieces(*languages: str) -> bytes:
    """Returns a SentencePiece model with the special tokens of T5, and tokens of languages as MADLAD-400 has them."""
    texts = make_texts(1, 200)
    return sentencepiece_model(
        (*texts, *map(translate_words, texts), INSTRUCTION),
        90 + len(languages),
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        user_defined_symbols=[f"<2{language}>" for language in languages],
    )


def write_t5(folder: Path, kind: str, seed: int = 3, *, training_steps: int = 0, **options: Any) -> Any:
    """Writes a checkpoint of the kind t5, t5-1.1, mt5 or madlad into a folder and returns its model.

    The weights are random, or trained to translate the words of `make_texts`.
    """
    pieces = t5_pieces(*(MADLAD_LANGUAGES if kind == "madlad" else ()))
    fields: dict[str, Any] = {**SMALL, "vocab_size": len(pieces_of(pieces)) + 6}
    if kind == "t5":
        fields |= {"task_specific_params": TASKS, "d_kv": 16}
    else:
        fields |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    mt5 = kind == "mt5"
    config = (MT5Config if mt5 else T5Config)(**{**fields, **options})
    model = (MT5ForConditionalGeneration if mt5 else T5ForConditionalGeneration)(config)
    if kind != "t5":
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    if training_steps:
        train_words(model, pieces, PREFIXES[kind], seed, training_steps)
    else:
        shuffle_weights(model, seed)
    special = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    model.generation_config = GenerationConfig(max_length=200, **special)
    model.eval().save_pretrained(folder)
    # The library writes true for every model, and reads false as that of T5 1.1.
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": kind == "t5"}))
    (folder / "spiece.model").write_bytes(pieces)
    return model


def train_words(model: Any, pieces: bytes, prefix: str, seed: int, steps: int) -> None:
    """Trains a model of `transformers`, which has the library's first weights for this seed."""
    torch.manual_seed(seed)
    model.apply(model._init_weights)
    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces)
    texts = make_texts(1, 200) + make_texts(2, 1800)
    pairs = [([*processor.encode(prefix + text), 1], [*processor.encode(translate_words(text)), 1]) for text in texts]
    train(model, pairs, pad_id=0, first_id=0, seed=seed, steps=steps)


def write_ctranslate2(model: Any, pieces: Sequence[str], folder: Path, model_file: bytes, tied: bool) -> None:
    """Writes a model in CTranslate2's format, with its SentencePiece model.

    The converter scales the output of models that are tied according to the library, which are all since its version 5.
    """
    model.config.tie_word_embeddings = tied
    convert(model, pieces, folder, start="<pad>", bos="<pad>")
    (folder / "spiece.model").write_bytes(model_file)
