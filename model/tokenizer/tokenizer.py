"""The SentencePiece tokenizer, the interface that serving needs, and the tokens of target languages. Imports no torch.

Source and target share one SentencePiece model (Kudo and Richardson 2018, arXiv:1808.06226), so that embeddings can be
tied. It normalizes text (NFKC and white space). A model with several target languages has a token such as `<2de>` for
each, which precedes the source (Johnson et al. 2017, arXiv:1611.04558) and never comes from text.
"""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

import sentencepiece

from dragoman.model.errors import UserError

if TYPE_CHECKING:
    from dragoman.model.config import Direction

# Start and end of each token in a text, in Unicode code points; normalization may leave a token without characters.
Offsets = list[tuple[int, int]]


class TextTokenizer(Protocol):
    """Converts text to token ids and back. Implementations are thread-safe."""

    @property
    def target_pieces(self) -> tuple[str, ...]:
        """The tokens of translations as written, in the order of their ids."""

    @property
    def target_unk_id(self) -> int:
        """The id in a translation for pieces missing from the target vocabulary."""

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one source text, without special tokens."""

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each source text, as `encode` does."""

    def encode_target(self, text: str) -> list[int]:
        """Returns the ids of a translation or its beginning, without special tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of target ids; special tokens are removed."""

    def decode_all(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each sequence of target ids, as `decode` does."""

    def encode_offsets(self, text: str) -> Offsets:
        """Returns where each id of `encode` starts and ends in the text."""

    def decode_offsets(self, ids: Sequence[int]) -> Offsets:
        """Returns where each target id starts and ends in the text of `decode`."""


PAD_ID = 0
UNK_ID = 1
BOS_ID = 2
EOS_ID = 3


class SpecialIds(NamedTuple):
    """The special tokens of a model: padding, start (BOS) and end (EOS) of a translation."""

    pad: int
    bos: int
    eos: int


OWN_IDS = SpecialIds(PAD_ID, BOS_ID, EOS_ID)


class Frame(NamedTuple):
    """The ids before every source of a direction, and those with which each of its translations starts after BOS."""

    source_prefix: tuple[int, ...]
    start: tuple[int, ...] = ()


# SentencePiece starts a thread for a list, which a shorter list does not make up for.
MIN_LIST = 32

# The space before a word, as tokens contain it.
WORD_START = "\u2581"


class TokenizerError(UserError):
    """The file is not a SentencePiece model, has other special ids, or lacks a language's token."""


def open_processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """Loads a SentencePiece model; raises TokenizerError if it is none, or empty, which SentencePiece accepts."""
    if not model:
        raise TokenizerError("not a SentencePiece model: the file is empty")
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        processor.id_to_piece(list(range(processor.vocab_size())))  # raises ValueError for a piece that is not UTF-8
    except (RuntimeError, ValueError) as error:
        raise TokenizerError("not a SentencePiece model") from error
    return processor


class ScoredTokens(NamedTuple):
    """A segmentation of a text, and its log-probability under the unigram model, in nats."""

    ids: list[int]
    log_probability: float


class Tokenizer:
    """A SentencePiece model with pad, unk, bos and eos at ids 0 to 3. Thread-safe."""

    special = OWN_IDS
    unk_id = UNK_ID
    source_suffix = (EOS_ID,)

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = open_processor(model)
        ids = (self._processor.pad_id(), self._processor.unk_id(), self._processor.bos_id(), self._processor.eos_id())
        if ids != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise TokenizerError(f"special ids: expected {(PAD_ID, UNK_ID, BOS_ID, EOS_ID)}, got {ids}")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a SentencePiece model file; raises TokenizerError if the file is not a SentencePiece model."""
        return cls(path.read_bytes())

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens, including special ones."""
        return int(self._processor.vocab_size())

    @property
    def source_pieces(self) -> tuple[str, ...]:
        """The tokens of sources as written, in the order of their ids."""
        return tuple(self.pieces(range(self.vocabulary_size)))

    @property
    def target_pieces(self) -> tuple[str, ...]:
        """The tokens of translations as written; both sides share one vocabulary."""
        return self.source_pieces

    @property
    def target_unk_id(self) -> int:
        """The id of unknown characters."""
        return UNK_ID

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one text, without special tokens; unknown characters become UNK_ID."""
        return list(self._processor.encode(text))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text; other threads run meanwhile."""
        if len(texts) < MIN_LIST:
            return [self.encode(text) for text in texts]
        return list(self._processor.encode(list(texts), num_threads=1))

    def encode_target(self, text: str) -> list[int]:
        """Returns the ids of one translation, the same as those of a source."""
        return self.encode(text)

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of many texts, using all CPUs."""
        return list(self._processor.encode(list(lines), num_threads=-1))

    def frame(self, directions: "Sequence[Direction]", direction: "Direction") -> Frame:
        """Returns the tokens around texts of a direction; raises TokenizerError or ValueError if there are none."""
        if direction not in directions:
            raise ValueError(f"does not translate {direction}, expected one of {', '.join(map(str, directions))}")
        tagged = direction.target in tagged_languages(directions)
        return Frame((self.language_token(direction.target),) if tagged else ())

    def normalize(self, text: str) -> str:
        """Returns normalized text, in which every word begins with `WORD_START`."""
        return str(self._processor.normalize(text))

    def segmentations(self, word: str, count: int) -> list[ScoredTokens]:
        """Returns up to `count` segmentations of a normalized word, most probable first; unigram models only."""
        # SentencePiece adds WORD_START again.
        best = self._processor.nbest_encode_as_proto(word.removeprefix(WORD_START), nbest_size=count)
        return [ScoredTokens([piece.id for piece in one.pieces], one.score) for one in best.nbests]

    def language_token(self, language: str) -> int:
        """Returns the id of a target language's token; raises TokenizerError if the tokenizer has none."""
        token_id = int(self._processor.piece_to_id(_language_piece(language)))
        if not self._processor.is_control(token_id):
            raise TokenizerError(f"the tokenizer has no token {_language_piece(language)}")
        return token_id

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns tokens as written in the vocabulary; `▁` marks the beginning of a word."""
        return [str(piece) for piece in self._processor.id_to_piece(list(ids))]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids; special tokens except UNK_ID are removed."""
        return str(self._processor.decode(list(ids)))

    def decode_all(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each sequence of ids; other threads run meanwhile."""
        if len(sequences) < MIN_LIST:
            return [self.decode(ids) for ids in sequences]
        return list(self._processor.decode([list(ids) for ids in sequences], num_threads=1))

    def encode_offsets(self, text: str) -> Offsets:
        """Returns where each id of `encode` starts and ends in the text."""
        return offsets_of(self._processor.encode(text, return_type="offset_mapping"))

    def decode_offsets(self, ids: Sequence[int]) -> Offsets:
        """Returns where each id starts and ends in the text of `decode`."""
        return offsets_of(self._processor.decode(list(ids), return_type="offset_mapping"))


def offsets_of(mapping: Mapping[str, Any]) -> Offsets:
    """Returns the offsets in a result of SentencePiece."""
    return [(int(start), int(end)) for start, end in mapping["offsets"]]


def train_tokenizer(
    lines: Iterable[str],
    vocabulary_size: int,
    *,
    kind: Literal["unigram", "bpe"] = "unigram",
    character_coverage: float = 1.0,
    target_languages: Sequence[str] = (),
) -> Tokenizer:
    """Trains a SentencePiece model on text of all languages; digits are single tokens, so that numbers can be copied.

    `kind` is a unigram language model (Kudo 2018, arXiv:1804.10959) or byte-pair encoding (Sennrich et al. 2016,
    arXiv:1508.07909). `vocabulary_size` is an upper bound and includes special tokens. `character_coverage` is the
    share of characters with a token of their own; the rest become UNK_ID. `target_languages` get a token each. Raises
    TokenizerError if SentencePiece finds no vocabulary, as of a size below the number of characters.
    """
    model = BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line for line in lines if line.strip()),
            model_writer=model,
            model_type=kind,
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            split_digits=True,
            # Control symbols, unlike user-defined ones, are never found in text: input cannot switch the language.
            control_symbols=[_language_piece(language) for language in target_languages],
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise TokenizerError(" ".join(str(error).split())) from error
    return Tokenizer(model.getvalue())


def _language_piece(language: str) -> str:
    return f"<2{language}>"


def tagged_languages(directions: "Sequence[Direction]") -> tuple[str, ...]:
    """Returns the sorted target languages if there are several, else none: only these need a token."""
    targets = tuple(sorted({direction.target for direction in directions}))
    return targets if len(targets) > 1 else ()
