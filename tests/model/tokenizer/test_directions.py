"""Language tokens: one per target language, and none for a single target language."""

import pytest

from dragoman.model.config import Direction
from dragoman.model.tokenizer import tokenizer as module
from dragoman.model.tokenizer.tokenizer import Tokenizer, tagged_languages, train_tokenizer


def directions_of(*pairs: str) -> tuple[Direction, ...]:
    return tuple(Direction(source=pair[:2], target=pair[3:]) for pair in pairs)


@pytest.fixture(scope="module")
def tagged() -> Tokenizer:
    return train_tokenizer(["one two three", "eins zwei drei"] * 5, 60, target_languages=("de", "fr"))


def test_a_model_of_one_target_language_needs_no_token(tokenizer: Tokenizer) -> None:
    directions = directions_of("en-de", "fr-de")
    assert tagged_languages(directions) == ()
    assert tokenizer.frame(directions, directions[1]) == ((), ())


def test_a_model_of_several_target_languages_gets_the_language_token(tagged: Tokenizer) -> None:
    directions = directions_of("en-fr", "en-de", "fr-de")
    assert tagged_languages(directions) == ("de", "fr")
    prefixes = [tagged.frame(directions, direction).source_prefix for direction in directions]
    assert prefixes == [(tagged.language_token(language),) for language in ("fr", "de", "de")]


def test_a_tokenizer_without_the_token_is_refused(tokenizer: Tokenizer) -> None:
    directions = directions_of("en-fr", "en-de")
    with pytest.raises(module.TokenizerError, match="has no token <2fr>"):
        tokenizer.frame(directions, directions[0])


def test_a_direction_that_the_model_does_not_have_is_refused(tagged: Tokenizer) -> None:
    (other,) = directions_of("de-en")
    with pytest.raises(ValueError, match=r"^does not translate de-en, expected one of en-fr, en-de$"):
        tagged.frame(directions_of("en-fr", "en-de"), other)
