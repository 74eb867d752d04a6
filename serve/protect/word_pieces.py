"""Which pieces of a target vocabulary continue a word: after a whole word, they would change it."""

import re
from collections.abc import Iterator, Sequence

from dragoman.model.tokenizer.tokenizer import WORD_START
from dragoman.serve.protect.alignment import SENTENCE_MARKS, UNSPACED

# Punctuation that may stand directly behind a word, and end there. A hyphen or an apostrophe joins words.
_CLOSING = f'{SENTENCE_MARKS})]}}"\u201c\u201d\u00bb\u203a'
# What may follow a word: another word, such punctuation, or a character of a script without spaces.
_AFTER_WORD = re.compile(rf"{WORD_START}|[{re.escape(_CLOSING)}]+(?:{WORD_START}|$)|[{UNSPACED}]")


def continuing_ids(pieces: Sequence[str], eos_id: int) -> Iterator[int]:
    """Yields the ids of the pieces that continue a word, unless no piece has a mark of where words begin.

    Args:
        pieces: in the order of their ids.
        eos_id: id of the end token, which may follow a word.
    """
    if any(piece.startswith(WORD_START) for piece in pieces):
        yield from (number for number, piece in enumerate(pieces) if number != eos_id and not _AFTER_WORD.match(piece))
