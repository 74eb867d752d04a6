"""How a model of many directions is told into which language to translate.

A token such as `<2de>` is put before the source (Johnson et al. 2017, arXiv:1611.04558). A model that writes one
language has no such tokens. Training and export ask here, so that both say the same.
"""

from collections.abc import Sequence

from model.config import Direction
from model.tokenizer.tokenizer import Tokenizer


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
