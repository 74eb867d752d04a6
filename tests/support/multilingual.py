"""Multilingual checkpoints of Hugging Face, written by its library with random weights, and what it generates.

The weights are such that different sources have different translations.
"""

import io
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from torch import nn
from transformers import GenerationConfig, M2M100Config, M2M100ForConditionalGeneration

from export.imports.multilingual import M2M100_LANGUAGES
from serve.bundle.language_codes import flores_codes
from tests.support.marian import fill, make_texts, pieces_of, translate_words

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
def shared_pieces() -> bytes:
    """Returns a SentencePiece model of both sides, with the special tokens of fairseq."""
    texts = make_texts(1, 200)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((*texts, *map(translate_words, texts))),
        model_writer=model,
        vocab_size=90,
        hard_vocab_limit=False,
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
            nn.init.normal_(parameter, std=1.0 if name.endswith("norm.weight") else 0.1)
    nn.init.normal_(model.get_input_embeddings().weight, std=0.2)


def random_m2m100(vocabulary_size: int, seed: int = 3, **options: Any) -> M2M100ForConditionalGeneration:
    """Returns a model of `transformers`."""
    model = M2M100ForConditionalGeneration(M2M100Config(vocab_size=vocabulary_size, **{**SMALL, **options}))
    shuffle_weights(model, seed)
    special = {"pad_token_id": PAD_ID, "eos_token_id": EOS_ID, "decoder_start_token_id": EOS_ID}
    model.generation_config = GenerationConfig(max_length=200, num_beams=5, **special)
    return model.eval()


def write_m2m100(folder: Path, seed: int = 3, *, settings: dict[str, Any] | None = None, **options: Any) -> Any:
    """Writes a checkpoint of M2M100's form into a folder and returns its model."""
    pieces = [*FIRST, *reversed(pieces_of(shared_pieces())[3:])]  # an order of its own
    model = random_m2m100(len(pieces) + len(M2M100_LANGUAGES) + 8, seed, **options)
    model.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    (folder / "sentencepiece.bpe.model").write_bytes(shared_pieces())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings or {}))
    return model


def write_nllb(folder: Path, seed: int = 3, **options: Any) -> Any:
    """Writes a checkpoint of NLLB's form into a folder and returns its model."""
    size = len(FIRST) + len(pieces_of(shared_pieces())) - 3 + len(flores_codes()) + 1
    model = random_m2m100(size + 2, seed, **options)
    model.save_pretrained(folder)
    (folder / "sentencepiece.bpe.model").write_bytes(shared_pieces())
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "NllbTokenizer"}))
    return model


@torch.inference_mode()
def generate(
    model: Any, sources: Sequence[Sequence[int]], beam_size: int, limit: int, first: int | None
) -> list[tuple[int, ...]]:
    """Returns the translations of `transformers` without special tokens; `first` is the forced language token.

    The settings make its search equal to ours; see `tests.support.marian.generate`.
    """
    source = fill(sources, PAD_ID)
    options: dict[str, Any] = {"early_stopping": True, "length_penalty": 1.0} if beam_size > 1 else {}
    starts = 0 if first is None else 1
    found = model.generate(
        input_ids=source,
        attention_mask=source != PAD_ID,
        num_beams=beam_size,
        max_length=limit + 1 + starts,
        forced_bos_token_id=first,
        forced_eos_token_id=None,
        do_sample=False,
        **options,
    )
    translations = []
    for row in found[:, 1 + starts :].tolist():
        ends = [number for number, token_id in enumerate(row) if token_id in (EOS_ID, PAD_ID)]
        translations.append(tuple(row[: ends[0]] if ends else row))
    return translations
