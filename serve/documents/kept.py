"""Which placeholders stay in a file, by the end of its name."""

from pathlib import PurePath

from dragoman.serve.translation.markup import AUTO

# Their texts are messages of programs, which have placeholders.
_MESSAGES = frozenset({".po", ".pot", ".json", ".arb", ".yaml", ".yml", ".xlf", ".xliff"})


def kept_placeholders(name: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the kinds of placeholders to keep in a file: those that the client names, or all in messages."""
    return kinds or ((AUTO,) if PurePath(name).suffix.lower() in _MESSAGES else ())
