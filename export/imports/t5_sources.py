"""What precedes the sources of T5 and MADLAD-400: an instruction in words, or the token of the target language."""

from collections.abc import Mapping
from pathlib import Path

from dragoman.export.imports.common import ImportedModelError
from dragoman.export.imports.multilingual import FROM_TARGET, LanguageRules
from dragoman.export.source_model import ImportedTokenizer
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import open_processor

# The languages into which T5 was trained to translate from English (Raffel et al. 2020, appendix D).
TARGETS = {"de": "German", "fr": "French", "ro": "Romanian"}


def instruction(tokenizer: ImportedTokenizer, source: str, target: str) -> tuple[int, ...]:
    """Returns the tokens of T5's instruction for two languages; none if T5 has no such task."""
    if source != "en" or target not in TARGETS:
        return ()
    return tuple(tokenizer.encode(f"translate English to {TARGETS[target]}: "))


def madlad_rules(path: Path, tokenizer: ImportedTokenizer, languages: Mapping[str, int]) -> LanguageRules:
    """Returns the place of MADLAD-400's language tokens: first, or after a space; raises ImportedModelError."""
    piece = tokenizer.source_pieces[min(languages.values())]
    if not isinstance(tokenizer, PieceTokenizer):
        raise ImportedModelError(f"{path}: {piece}: expected a SentencePiece model with this piece")
    read = open_processor(tokenizer.source_model).encode(f"{piece} a", out_type=str)
    if piece not in read:
        raise ImportedModelError(f"{path}: {piece}: expected one piece, SentencePiece reads {' '.join(read)}")
    prefix = tuple(tokenizer.source_pieces.index(item) for item in read[: read.index(piece)])
    return FROM_TARGET._replace(source_prefix=prefix)
