"""Text to token ids and back, the same in training and in serving. Knows no torch.

One SentencePiece model (Kudo and Richardson 2018, arXiv:1808.06226) is shared by source and target, so that the model
can tie its embeddings. It normalizes text as it was trained to (NFKC and white space). A model that writes several
languages has a token for each of them, which no text contains.

What serving needs of a tokenizer, whichever it is: text to ids, ids to text, and how target tokens are written.

`model.tokenizer.tokenizer` is the one that Dragoman trains, `model.tokenizer.piece_tokenizer` that of models which
others trained.

How a model of many directions is told into which language to translate.

A token such as `<2de>` is put before the source (Johnson et al. 2017, arXiv:1611.04558). A model that writes one
language has no such tokens. Training and export ask here, so that both say the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self

import sentencepiece

from model.config import Direction


class TextTokenizer(Protocol):
    """Turns text into token ids and back. May be used by many threads at once."""

    @property
    def target_pieces(self) -> tuple[str, ...]:
        """How the tokens of translations are written, in the order of their ids."""

    @property
    def target_unk_id(self) -> int:
        """The id of what a translation holds in the place of a piece that the target vocabulary lacks."""

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one source text, without special tokens."""

    def encode_target(self, text: str) -> list[int]:
        """Returns the ids of a translation or of its beginning, without special tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids of a translation; special tokens vanish."""


PAD_ID = 0
UNK_ID = 1
BOS_ID = 2
EOS_ID = 3

# Stands in tokens for the space before a word.
WORD_START = "\u2581"


class TokenizerError(Exception):
    """The file is not a SentencePiece model, has other special ids than Dragoman's, or lacks a language's token."""


class ScoredTokens(NamedTuple):
    """One way to cut text into tokens.

    Attributes:
        ids: the tokens.
        log_probability: of the tokens under the unigram model, in nats.
    """

    ids: list[int]
    log_probability: float


class Tokenizer:
    """A SentencePiece model with pad, unk, bos and eos at ids 0 to 3. May be used by many threads at once."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, ValueError) as error:
            raise TokenizerError("not a SentencePiece model") from error
        ids = (self._processor.pad_id(), self._processor.unk_id(), self._processor.bos_id(), self._processor.eos_id())
        if ids != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise TokenizerError(f"special ids are {ids}, expected {(PAD_ID, UNK_ID, BOS_ID, EOS_ID)}")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a SentencePiece model file.

        Raises:
            TokenizerError: if the file is not such a model.
        """
        return cls(path.read_bytes())

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens, special ones included."""
        return int(self._processor.vocab_size())

    @property
    def source_pieces(self) -> tuple[str, ...]:
        """How the tokens of sources are written, in the order of their ids."""
        return tuple(self.pieces(range(self.vocabulary_size)))

    @property
    def target_pieces(self) -> tuple[str, ...]:
        """How the tokens of translations are written: both sides share one vocabulary."""
        return self.source_pieces

    @property
    def target_unk_id(self) -> int:
        """The id of unknown characters."""
        return UNK_ID

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one text, without special tokens; unknown characters become UNK_ID."""
        return list(self._processor.encode(text))

    def encode_target(self, text: str) -> list[int]:
        """Returns the ids of one translation, which are those that the same source would have."""
        return self.encode(text)

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of many texts, computed by all CPUs."""
        return list(self._processor.encode(list(lines), num_threads=-1))

    def normalize(self, text: str) -> str:
        """Returns text as its tokens spell it: every word begins with `WORD_START`."""
        return str(self._processor.normalize(text))

    def segmentations(self, word: str, count: int) -> list[ScoredTokens]:
        """Returns the most probable ways to cut a word into tokens, the best first; for a unigram model only.

        Args:
            word: a normalized word.
            count: so many at most.
        """
        # The start of the word is added again.
        best = self._processor.nbest_encode_as_proto(word.removeprefix(WORD_START), nbest_size=count)
        return [ScoredTokens([piece.id for piece in one.pieces], one.score) for one in best.nbests]

    def language_token(self, language: str) -> int:
        """Returns the id of the token that asks for a translation into a language.

        Raises:
            TokenizerError: if there is none, because the tokenizer was trained without this target language.
        """
        token_id = int(self._processor.piece_to_id(_language_piece(language)))
        if not self._processor.is_control(token_id):
            raise TokenizerError(f"the tokenizer has no token {_language_piece(language)}")
        return token_id

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns how the tokens are written in the vocabulary: `▁` marks where a word begins."""
        return [str(piece) for piece in self._processor.id_to_piece(list(ids))]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids; special tokens but UNK_ID vanish."""
        return str(self._processor.decode(list(ids)))


def train_tokenizer(
    lines: Iterable[str],
    vocabulary_size: int,
    *,
    kind: Literal["unigram", "bpe"] = "unigram",
    character_coverage: float = 1.0,
    target_languages: Sequence[str] = (),
) -> Tokenizer:
    """Trains a SentencePiece model on text of all languages.

    Args:
        lines: sentences; blank ones are skipped.
        vocabulary_size: upper bound of the number of tokens, special ones included.
        kind: unigram language model (Kudo 2018, arXiv:1804.10959) or byte-pair encoding (Sennrich et al. 2016,
            arXiv:1508.07909).
        character_coverage: share of the characters that get a token of their own; the rest become UNK_ID.
        target_languages: languages that get a token, for `language_token`.

    Returns:
        The tokenizer; digits are single tokens, so that numbers can be copied.
    """
    model = _ModelBuffer()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=_non_blank(lines),
        model_writer=model,
        model_type=kind,
        vocab_size=vocabulary_size,
        hard_vocab_limit=False,
        character_coverage=character_coverage,
        split_digits=True,
        # Control symbols, unlike user-defined ones, are never found in text: nobody can switch the language by typing.
        control_symbols=[_language_piece(language) for language in target_languages],
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        minloglevel=2,
    )
    return Tokenizer(bytes(model.content))


class _ModelBuffer:
    """The file-like object that the trainer writes to."""

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, data: bytes) -> None:
        self.content.extend(data)


def _non_blank(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if line.strip())


def _language_piece(language: str) -> str:
    return f"<2{language}>"


def tagged_languages(directions: Sequence[Direction]) -> tuple[str, ...]:
    """Returns the languages that need a token, sorted: all that the model writes, or none if it writes one alone."""
    targets = tuple(sorted({direction.target for direction in directions}))
    return targets if len(targets) > 1 else ()


def source_prefix(tokenizer: Tokenizer, directions: Sequence[Direction], direction: Direction) -> tuple[int, ...]:
    """Returns the ids that are put before every source of a direction.

    Args:
        tokenizer: has a token for each of `tagged_languages(directions)`.
        directions: all that the model translates.
        direction: one of them.

    Raises:
        TokenizerError: if the tokenizer lacks the token.
        ValueError: if the model does not translate in this direction.
    """
    if direction not in directions:
        raise ValueError(f"does not translate {direction}, expected one of {', '.join(map(str, directions))}")
    if direction.target not in tagged_languages(directions):
        return ()
    return (tokenizer.language_token(direction.target),)
