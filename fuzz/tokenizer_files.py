"""Tokenizers of bundles: files are refused with the documented errors, or the tokenizer keeps text and ids in range."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dragoman.model.tokenizer.bpe import Merges
from dragoman.model.tokenizer.tokenizer import TokenizerError
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import Manifest
from dragoman.serve.bundle.tokenizer import load_tokenizer
from dragoman.serve.bundle.tokenizer_spec import PieceSpec, SentencePieceSpec

CORPUS = Path(__file__).parent / "corpus" / "tokenizer_files"
# The first byte of an input is the index of its kind; the corpus has an example by the name of each.
MODEL, VOCABULARY, PIECES, MERGES = KINDS = ("tokenizer.model", "vocabulary.json", "pieces.model", "merges.bpe")
_SHARED: Any = {f"{side}_model": PIECES for side in ("source", "target")}
_SHARED |= {f"{side}_vocabulary": VOCABULARY for side in ("source", "target")}
TEXTS = ("", "a dog", "ab \u2581 <unk> </s> a", "\u00e4\u0301 \U0001f600\t\n ba")
MAX_VOCABULARY = 1000


def check(data: bytes) -> None:
    """Reads a file in the place of a valid one, then encodes and decodes texts."""
    kind, content = KINDS[data[0] % len(KINDS)] if data else MODEL, data[1:]
    try:
        if kind == MERGES:
            assert all("".join(Merges(content).split(word)) == word for word in ("a", "dog", "abab", "\u00e4\u00e4b"))
        else:
            _check_file(kind, content)
    except TokenizerError:
        return


def _check_file(kind: str, content: bytes) -> None:
    spec = (
        SentencePieceSpec(model=MODEL)
        if kind == MODEL
        else PieceSpec(unknown_piece="<unk>", special_pieces=("</s>",), **_SHARED)
    )
    with TemporaryDirectory() as name:
        folder = Path(name)
        for other in (VOCABULARY, PIECES):
            (folder / other).write_bytes((CORPUS / other).read_bytes()[1:])
        (folder / kind).write_bytes(content)
        fields: dict[str, Any] = {"tokenizer": spec, "vocabulary_size": MAX_VOCABULARY}
        tokenizer = load_tokenizer(Bundle(folder, Manifest.model_construct(**fields), ()))
    for text in TEXTS:
        ids, targets = tokenizer.encode(text), tokenizer.encode_target(text)
        assert all(0 <= number < MAX_VOCABULARY for number in ids + targets), ids + targets
        assert len(tokenizer.encode_offsets(text)) == len(ids)
        assert len(tokenizer.decode_offsets(targets)) == len(targets)
        tokenizer.decode(targets)
