"""Reads the tokenizer next to a CTranslate2 model: SentencePiece models, or merges of byte pair encoding."""

from collections.abc import Iterable
from pathlib import Path

from dragoman.export.imports.common import ImportedModelError, ImportOptions, language_pieces
from dragoman.export.imports.ctranslate2_files import BPE_FILE, TOKENIZERS, Config, Vocabularies
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.word_tokenizer import WordTokenizer
from dragoman.serve.bundle.files import read_file

PAD_PIECES = ("<blank>", "<pad>")


def read_tokenizer(
    folder: Path, config: Config, vocabularies: Vocabularies, tokens: Iterable[int], options: ImportOptions
) -> PieceTokenizer | WordTokenizer:
    """Reads the tokenizer in the folder of a model or its parent; raises ImportedModelError if it is unusable."""
    source, target = vocabularies.source, vocabularies.target
    special = {config.bos, config.eos, *PAD_PIECES, *language_pieces(source)}
    special |= {target[number] for number in tokens}
    special |= {config.start or config.bos}
    paths, special_pieces = _find_files(folder), sorted(special)
    model = read_file(paths[0])
    if len(paths) == 1:
        languages = _languages(paths[0], options)
        return WordTokenizer(model, languages, source, target, unknown_piece=config.unk, special_pieces=special_pieces)
    other = read_file(paths[1])
    return PieceTokenizer(model, other, source, target, unknown_piece=config.unk, special_pieces=special_pieces)


def _languages(path: Path, options: ImportOptions) -> tuple[str, str]:
    if options.source_language is None or options.target_language is None:
        problem = "expected both languages, whose rules cut text into words"
        raise ImportedModelError(f"{path}: source-language, target-language: {problem}")
    return options.source_language, options.target_language


def _find_files(folder: Path) -> tuple[Path] | tuple[Path, Path]:
    """Returns the file of merges, or the SentencePiece models of source and target."""
    for location in (folder, folder.parent):
        for source, target in TOKENIZERS:
            if (location / source).is_file() and (location / target).is_file():
                return location / source, location / target
        if (location / BPE_FILE).is_file():
            return (location / BPE_FILE,)
    names = ", ".join(dict.fromkeys(" and ".join(dict.fromkeys(pair)) for pair in TOKENIZERS))
    expected = f"expected {BPE_FILE} or a SentencePiece model, one of {names}"
    raise ImportedModelError(f"{folder}: {expected}, in the folder or its parent")
