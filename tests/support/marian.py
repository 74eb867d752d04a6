"""Marian checkpoints of Hugging Face, written by its library: random models, and a small trained one.

Random models show rare behavior: they end at once, late or never.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from torch import nn
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from tests.support import small_models
from tests.support.cases import cases
from tests.support.small_models import randomize, sentencepiece_model, train

EOS_PIECE, UNK_PIECE, PAD_PIECE = "</s>", "<unk>", "<pad>"
EOS_ID = 0
DATA: dict[str, Any] = cases(__file__)
SMALL: dict[str, Any] = DATA["small"]
WORDS: dict[str, str] = DATA["words"]


@cache
def make_texts(seed: int, count: int) -> tuple[str, ...]:
    """Returns different texts of 1 to 8 words."""
    random = np.random.default_rng(seed)
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[" ".join(random.choice(list(WORDS), random.integers(1, 9)))] = None
    return tuple(texts)


def translate_words(text: str) -> str:
    return " ".join(WORDS[word] for word in text.split())


@cache
def train_pieces(side: str) -> bytes:
    texts = make_texts(1, 200)
    return marian_pieces(texts if side == "source" else map(translate_words, texts), 60, at_most=True)


def marian_pieces(texts: Iterable[str], count: int, *, at_most: bool = False) -> bytes:
    """Returns a SentencePiece model with `count` pieces, or fewer, and the special tokens of Marian."""
    return sentencepiece_model(
        texts, count, hard_vocab_limit=not at_most, eos_id=EOS_ID, unk_id=1, bos_id=-1, pad_id=-1
    )


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [str(processor.id_to_piece(number)) for number in range(processor.vocab_size())]


def marian_vocabulary(*more: str) -> dict[str, int]:
    """Returns a vocabulary of both sides in its own order, with padding last as in OPUS-MT."""
    both = {*pieces_of(train_pieces("source"))[2:], *pieces_of(train_pieces("target"))[2:]}
    pieces = (EOS_PIECE, UNK_PIECE, *more, *sorted(both), PAD_PIECE)
    return {piece: number for number, piece in enumerate(pieces)}


def encode(model: bytes, vocabulary: dict[str, int], text: str) -> list[int]:
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model).encode(text, out_type=str)
    return [*(vocabulary.get(piece, vocabulary[UNK_PIECE]) for piece in pieces), EOS_ID]


def random_marian(vocabulary_size: int, *, seed: int = 3, **options: Any) -> MarianMTModel:
    """Returns a model of `transformers` with different translations of different sources."""
    pad = vocabulary_size - 1
    special = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": EOS_ID}
    torch.manual_seed(seed)
    model = MarianMTModel(MarianConfig(vocab_size=vocabulary_size, **{**SMALL, **special, **options}))
    randomize((name, parameter) for name, parameter in model.named_parameters() if "embed_positions" not in name)
    with torch.no_grad():
        for embedding in {model.get_input_embeddings(), model.get_output_embeddings()}:
            nn.init.normal_(embedding.weight, std=0.2 if model.config.scale_embedding else 1.0)
            embedding.weight[pad] = 0.0
        model.final_logits_bias.normal_(std=0.3)
    # Checkpoints of OPUS-MT have this.
    search = {"bad_words_ids": [[pad]], "renormalize_logits": True, "forced_eos_token_id": EOS_ID, "num_beams": 4}
    model.generation_config = GenerationConfig(max_length=64, **special, **search)
    return model.eval()


def trained_marian(vocabulary: dict[str, int]) -> MarianMTModel:
    """Returns a model that has learned `WORDS`; takes a few seconds."""
    model = random_marian(len(vocabulary))
    pad = vocabulary[PAD_PIECE]
    texts = make_texts(1, 200) + make_texts(2, 1800)
    sources = [encode(train_pieces("source"), vocabulary, text) for text in texts]
    targets = [encode(train_pieces("target"), vocabulary, translate_words(text)) for text in texts]
    nn.init.normal_(model.model.shared.weight, std=SMALL["d_model"] ** -0.5)
    train(model, [*zip(sources, targets, strict=True)], pad_id=pad, first_id=pad, seed=4, steps=300)
    with torch.no_grad():
        model.model.shared.weight[pad] = 0.0
    return model


def generate(
    model: MarianMTModel, sources: Sequence[Sequence[int]], beam_size: int, limit: int
) -> list[tuple[int, ...]]:
    """Returns the translations of `transformers`, which renormalizes after forbidden tokens as we do."""
    pad = model.config.pad_token_id
    return small_models.generate(
        model, sources, beam_size, limit, pad_id=pad, end_ids=(EOS_ID, pad), renormalize_logits=True
    )


def write_marian(
    folder: Path, model: MarianMTModel, vocabulary: dict[str, int], *, safe: bool = True, **tokenizer: Any
) -> Path:
    model.save_pretrained(folder)
    if not safe:
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(train_pieces(side))
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    content = {"source_lang": "en", "target_lang": "de", **tokenizer}
    (folder / "tokenizer_config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
