"""Texts for the golden sentences of an imported model, which comes without sentences: words of its own vocabulary.

They mean nothing; what counts is that the model translates them here and at the server alike.
"""

from collections.abc import Sequence
from itertools import cycle, islice

from model.tokenizer.tokenizer import WORD_START

TEXTS = 24
WORDS_OF_TEXTS = (1, 2, 3, 4, 5, 6, 8, 10)
# Vocabularies begin with what is common.
COMMON_PIECES = 2000


def golden_texts(pieces: Sequence[str]) -> list[str]:
    """Returns texts of several lengths, always the same ones; none if the vocabulary has no words.

    Args:
        pieces: of the source vocabulary, in the order of their ids.
    """
    letters = [piece for piece in pieces if piece.removeprefix(WORD_START).isalpha()]
    # A script without spaces has no pieces that begin words.
    words = [piece for piece in letters if piece.startswith(WORD_START)] or letters
    common = words[:COMMON_PIECES]
    if not common:
        return []
    endless = cycle(common[:: max(1, len(common) // sum(islice(cycle(WORDS_OF_TEXTS), TEXTS)))])
    lengths = islice(cycle(WORDS_OF_TEXTS), TEXTS)
    return ["".join(islice(endless, length)).replace(WORD_START, " ").strip() for length in lengths]
