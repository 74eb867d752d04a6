"""Imports Marian checkpoints in Hugging Face format, for example OPUS-MT.

Reads config.json, generation_config.json, the parameters, vocab.json and the SentencePiece models; does not need the
library `transformers`. Rejects unsupported fields by name.
"""

import math
from pathlib import Path

import numpy as np
from pydantic import Field

from dragoman.export.imports import common
from dragoman.export.imports.checkpoint import (
    CONFIG_FILE,
    OUTPUT,
    SHARED,
    SOURCE,
    TARGET,
    TOKENIZER_CONFIG_FILE,
    CheckpointConfig,
    Imported,
    first_stored,
    read_config,
    read_layers,
    read_optional_fields,
    read_tensors,
    special_piece,
)
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.files import read_file
from dragoman.serve.bundle.manifest import MAX_VOCABULARY


class MarianConfig(CheckpointConfig):
    """The fields of config.json that determine the computation of a Marian model."""

    decoder_vocab_size: int | None = Field(None, gt=0, le=MAX_VOCABULARY)
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    bad_words_ids: tuple[tuple[int, ...], ...] | None = None

    @property
    def target_size(self) -> int:
        """The size of the target vocabulary."""
        return self.decoder_vocab_size or self.vocab_size

    @property
    def tied(self) -> bool:
        """True if one matrix embeds source and target and is the output projection."""
        return self.share_encoder_decoder_embeddings and self.tie_word_embeddings

    def check(self, path: Path) -> None:
        """Checks that the fields fit together; raises ImportedModelError naming the field."""
        if self.share_encoder_decoder_embeddings and self.target_size != self.vocab_size:
            raise common.ImportedModelError(
                f"{path}: decoder_vocab_size: {self.target_size}: expected {self.vocab_size},"
                " because share_encoder_decoder_embeddings is true"
            )
        super().check(path)
        for ids in self.bad_words_ids or ():
            if len(ids) != 1 or not 0 <= ids[0] < self.target_size:
                problem = "expected single token ids of the vocabulary"
                raise common.ImportedModelError(f"{path}: bad_words_ids: {list(ids)}: {problem}")


def import_marian(folder: Path, options: common.ImportOptions) -> Imported:
    """Reads a checkpoint; raises ImportedModelError if it is not supported."""
    config = read_config(folder, MarianConfig, common.EXPECTED["marian"], common.EXPECTED["search"])
    settings = read_optional_fields(folder / TOKENIZER_CONFIG_FILE)
    tokenizer = _tokenizer(folder, config, settings)
    model = _model(folder, config, options)
    source, target = (_text(settings.get(name)) for name in ("source_lang", "target_lang"))
    directions = common.find_directions(tokenizer.source_pieces, options, source, target)
    eos = special_piece(settings, "eos_token", "</s>")
    suffix = (common.find_piece(folder / "vocab.json", tokenizer.source_pieces, eos),)
    return model, tokenizer, (directions, None), suffix


def _tokenizer(folder: Path, config: MarianConfig, settings: dict[str, object]) -> PieceTokenizer:
    source_path, target_path = folder / "vocab.json", folder / "target_vocab.json"
    source = common.check_pieces(source_path, common.read_json(source_path))
    target = (
        common.check_pieces(target_path, common.read_json(target_path)) if settings.get("separate_vocabs") else source
    )
    for path, pieces, size in ((source_path, source, config.vocab_size), (target_path, target, config.target_size)):
        if len(pieces) > size:
            raise common.ImportedModelError(
                f"{path}: {len(pieces)} pieces, expected at most {size} as in {CONFIG_FILE}"
            )
    if config.eos_token_id >= len(target):
        raise common.ImportedModelError(
            f"{folder / CONFIG_FILE}: eos_token_id: {config.eos_token_id}: expected an id of the vocabulary"
        )
    special = {special_piece(settings, "eos_token", "</s>"), special_piece(settings, "pad_token", "<pad>")}
    special |= {target[config.eos_token_id], *common.language_pieces(source)}
    return PieceTokenizer(
        read_file(folder / "source.spm"),
        read_file(folder / "target.spm"),
        source,
        target,
        unknown_piece=special_piece(settings, "unk_token", "<unk>"),
        special_pieces=sorted(special),
    )


def _model(folder: Path, config: MarianConfig, options: common.ImportOptions) -> TransformerWeights:
    limits = common.find_limits(options, config.max_position_embeddings)
    with read_tensors(folder) as tensors:
        parameters, is_tied = _embeddings(tensors, config)
        parameters |= read_layers(tensors, config)
        for side, name in (("source", "encoder"), ("target", "decoder")):
            stored = tensors.take_optional(f"model.{name}.embed_positions.weight")
            width = parameters["embedding.weight"].shape[-1]
            table = marian_positions(limits.positions, width) if stored is None else stored.read()
            parameters[f"{side}_positions.table"] = table[: limits.positions]
    size = max(config.vocab_size, config.target_size)
    fields = {**config.transformer_fields, "norm_position": "post", "tie_embeddings": is_tied, "output_bias": True}
    return common.build_transformer(fields, limits, size, config.special, parameters)


def marian_positions(length: int, d_model: int) -> common.Array:
    """Returns the position encodings of `transformers`, float32 [length, d_model]: all sines, then all cosines.

    The angles are those of Vaswani et al. 2017, section 3.5.
    """
    angles = np.arange(length)[:, None] * np.exp(np.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    return np.concatenate((np.sin(angles), np.cos(angles)), axis=1).astype(np.float32)


def _embeddings(tensors: common.Tensors, config: MarianConfig) -> tuple[dict[str, common.Parameter], bool]:
    """Returns embeddings, output matrix and output bias, all with the size of the larger vocabulary.

    Returns also whether the matrices are tied.
    """
    size = max(config.vocab_size, config.target_size)
    bias = np.full(size, -np.inf, np.float32)
    bias[: config.target_size] = tensors.take("final_logits_bias", (1, config.target_size)).read()[0]
    for (token_id,) in config.bad_words_ids or ():
        bias[token_id] = -np.inf
    # A checkpoint stores a tied matrix under one of its names or under all of them.
    stored = {name: tensors.take_optional(name) for name in (SHARED, SOURCE, TARGET, OUTPUT)}
    shared = (SHARED,) if config.share_encoder_decoder_embeddings else ()
    if config.tied:
        source = target = first_stored(tensors, stored, size, SHARED, SOURCE, TARGET, OUTPUT)
    else:
        target_names = (TARGET, *shared, OUTPUT) if config.tie_word_embeddings else (TARGET, *shared)
        source = first_stored(tensors, stored, config.vocab_size, SOURCE, *shared)
        target = first_stored(tensors, stored, config.target_size, *target_names)
    output = target if config.tie_word_embeddings else first_stored(tensors, stored, config.target_size, OUTPUT)
    matrices, is_tied = common.embeddings(source, target, output, size)
    return {**matrices, "output_bias": bias}, is_tied


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
