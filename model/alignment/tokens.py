"""Links between words as links between tokens, and back.

The tokens of a word are those from one that begins with `WORD_START` up to the next. If normalization changes the
number of words of a side, its tokens have no words, and the pair no links.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dragoman.model.alignment.links import Link
from dragoman.model.tokenizer.tokenizer import WORD_START


def starts_of_words(pieces: Iterable[str]) -> NDArray[np.bool_]:
    """Returns for each token of a vocabulary, given as written, whether it begins a word."""
    return np.array([piece.startswith(WORD_START) for piece in pieces])


def words_of_tokens(ids: Sequence[int], starts: NDArray[np.bool_], words: int) -> list[int]:
    """Returns the number of the word of each token; an empty list if the tokens have not exactly `words` words."""
    numbers = [count - 1 for count in accumulate(map(int, starts[list(ids)]))]
    return numbers if numbers and numbers[0] == 0 and numbers[-1] == words - 1 else []


def token_links(links: Iterable[Link], source_words: Sequence[int], target_words: Sequence[int]) -> list[Link]:
    """Returns links between all tokens of linked words, sorted; the sequences are the words of the tokens."""
    sources, targets = (_tokens_of_words(numbers) for numbers in (source_words, target_words))
    return [(s, t) for i, j in links for s in sources.get(i, ()) for t in targets.get(j, ())]


def _tokens_of_words(words: Sequence[int]) -> dict[int, list[int]]:
    tokens: dict[int, list[int]] = {}
    for token, word in enumerate(words):
        tokens.setdefault(word, []).append(token)
    return tokens


def word_links(
    weights: NDArray[np.float32], source_words: Sequence[int], target_words: Sequence[int]
) -> frozenset[Link]:
    """Links each target word to the source word with the largest attention.

    `weights` [T, S] are those of the target's tokens to the source's. The weight between two words is the sum over
    their tokens.
    """
    if not source_words or not target_words:
        return frozenset()
    between = np.zeros((target_words[-1] + 1, source_words[-1] + 1))
    np.add.at(between, (np.array(target_words)[:, None], np.array(source_words)[None]), weights)
    return frozenset((int(source), target) for target, source in enumerate(between.argmax(axis=1)))
