"""Shared code of the importers of multilingual checkpoints that were trained with fairseq."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dragoman.export.imports import checkpoint
from dragoman.export.imports.common import ImportedModelError, Tensors, stored_pieces
from dragoman.export.imports.stored import StoredArray
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer

SENTENCEPIECE_FILE = "sentencepiece.bpe.model"
UNKNOWN, EOS, MASK = "<unk>", "</s>", "<mask>"
# The first ids of fairseq's vocabularies. SentencePiece begins with <unk>, <s> and </s>.
FAIRSEQ_PIECES = ("<s>", "<pad>", EOS, UNKNOWN)
SENTENCEPIECE_SPECIAL = 3


def fairseq_pieces(path: Path, model_file: bytes) -> list[str]:
    """Returns the pieces of a SentencePiece model in the order of fairseq; raises ImportedModelError if it is none."""
    return [*FAIRSEQ_PIECES, *stored_pieces(path, model_file)[SENTENCEPIECE_SPECIAL:]]


def multilingual_tokenizer(model_file: bytes, pieces: Sequence[str], languages: Mapping[str, int]) -> PieceTokenizer:
    """Returns a tokenizer that never reads language tokens from a text."""
    special = {*FAIRSEQ_PIECES, MASK, *(pieces[number] for number in languages.values())} - {UNKNOWN}
    special |= {piece for piece in pieces if FILLER.fullmatch(piece)}
    special_pieces = sorted(special & set(pieces))
    return PieceTokenizer(model_file, model_file, pieces, pieces, unknown_piece=UNKNOWN, special_pieces=special_pieces)


# Rows without a piece, which training has never used.
FILLER = re.compile(r"madeupword\d{4,}")
# Known models have up to a few hundred.
MAX_FILLERS = 5000


def filled(path: Path, pieces: list[str], size: int) -> list[str]:
    """Returns the pieces with names for the other rows; raises ImportedModelError if there are too few or too many."""
    if not size - MAX_FILLERS <= len(pieces) <= size:
        expected = f"{max(0, size - MAX_FILLERS)} to {size} as in {checkpoint.CONFIG_FILE}"
        raise ImportedModelError(f"{path}: {len(pieces)} pieces, expected {expected}")
    return [*pieces, *(f"madeupword{number:04}" for number in range(size - len(pieces)))]


def with_added(pieces: list[str], settings: Mapping[str, object]) -> list[str]:
    """Returns the pieces with those that the tokenizer's configuration lists by id, as new languages."""
    added = settings.get("added_tokens_decoder")
    for number, token in sorted(_added_tokens(added if isinstance(added, dict) else {})):
        if number < len(pieces):
            pieces[number] = token
        elif number == len(pieces):
            pieces.append(token)
    return pieces


def _added_tokens(added: Mapping[str, object]) -> Iterator[tuple[int, str]]:
    for number, token in added.items():
        content = token.get("content") if isinstance(token, dict) else token
        if number.isdecimal() and isinstance(content, str):
            yield int(number), content


def final_norms(tensors: Tensors) -> Iterator[tuple[str, StoredArray]]:
    """Yields the normalizations after both stacks."""
    for side in ("encoder", "decoder"):
        yield from checkpoint.read_linear(tensors, f"{side}_norm", f"model.{side}.layer_norm")


def embedding_norms(tensors: Tensors) -> Iterator[tuple[str, StoredArray]]:
    """Yields the normalizations of the embeddings of both sides."""
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        yield from checkpoint.read_linear(tensors, f"{side}_embedding_norm", f"model.{stack}.layernorm_embedding")


def shared_embedding(tensors: Tensors, config: checkpoint.CheckpointConfig) -> StoredArray:
    """Takes the matrix that embeds source and target and makes the logits."""
    names = (checkpoint.SHARED, checkpoint.SOURCE, checkpoint.TARGET, checkpoint.OUTPUT)
    return checkpoint.first_stored(
        tensors, {name: tensors.take_optional(name) for name in names}, config.vocab_size, *names
    )
