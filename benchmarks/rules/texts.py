"""Texts with placeholders and terms from `texts.yaml`, and messages of ICU from a grammar. All follow from a seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml

_TEXTS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("texts.yaml").read_text("utf-8"))
_NOUNS = ("dog", "boy", "red ball", "woman", "boat", "child in the park", "old man", "bike")
_CLAUSES = ("plays with a ball", "is waiting", "runs on the beach", "sits on a bench", "likes {name}", "sees {0} here")
_PLURALS = ("one", "other"), ("=0", "one", "other"), ("one", "few", "many", "other"), ("=1", "other")


@dataclass(frozen=True, slots=True)
class Case:
    """A text to translate, with a placeholder or a term, which has a source and a translation.

    The translation must contain `kept`, as often: the placeholder, or the translation of the term.
    """

    text: str
    kept: str
    term: tuple[str, str] | None = None


def bounded_cases(source: str, target: str) -> list[Case]:
    """Returns 250 sentences with a placeholder or a term."""
    pairs = product(_TEXTS["placeholders"], _TEXTS["sentences"][source])
    cases = [Case(sentence.format(placeholder), placeholder) for placeholder, sentence in pairs]
    terms = product(_TEXTS["terms"][target].items(), _TEXTS["term_sentences"][source])
    return [*cases, *(Case(sentence.format(term[0]), term[1], term) for term, sentence in terms)]


def short_texts() -> list[Case]:
    """Returns 500 short texts with one placeholder and words."""
    pairs = product(_TEXTS["short"], (*_TEXTS["placeholders"], *_TEXTS["more_placeholders"]))
    return [Case(text.format(placeholder), placeholder) for text, placeholder in pairs]


class MessageGrammar:
    """Draws messages of ICU."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def messages(self, count: int) -> Iterator[str]:
        """Yields distinct messages."""
        drawn = set[str]()
        while len(drawn) < count:
            message = self._message()
            if message not in drawn:
                drawn.add(message)
                yield message

    def _message(self) -> str:
        argument = self._argument(2)
        return self._random.choice(
            ("{}", "The {} runs.", "{} in the park", "We saw {}, and it''s late.", "{} here")
        ).format(argument)

    def _argument(self, levels: int) -> str:
        kind = self._random.choice(("plural", "plural", "select", "selectordinal"))
        if kind == "select":
            branches = (f"{name} {{{self._text(levels)}}}" for name in ("male", "female", "other"))
            return f"{{gender, select, {' '.join(branches)}}}"
        offset = self._random.choice(("", "", " offset:1")) if kind == "plural" else ""
        ordinals = {"one": "#st ", "two": "#nd ", "few": "#rd ", "other": "#th "}
        names = ("one", "two", "few", "other") if kind == "selectordinal" else self._random.choice(_PLURALS)
        number = ordinals.get if kind == "selectordinal" else self._number
        branches = (f"{name} {{{number(name) or ''}{self._text(levels)}}}" for name in names)
        return f"{{count, {kind},{offset} {' '.join(branches)}}}"

    def _number(self, _: str) -> str:
        return self._random.choice(("# ", "# ", "# ", "<b>#</b> ", ""))

    def _text(self, levels: int) -> str:
        if levels and self._random.random() < 0.2:  # noqa: PLR2004 - the share of nested messages
            return f"a dog and {self._argument(levels - 1)}"
        noun, clause = self._random.choice(_NOUNS), self._random.choice((*_CLAUSES, "", ""))
        return f"{noun} {clause}".strip() + self._random.choice(("", "", "", ".", " '{'literal'}'", " o''clock"))
