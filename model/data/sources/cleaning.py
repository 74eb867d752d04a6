"""Makes training text of aligned messages: without mnemonics, in sentences, and without pairs that teach nothing.

Placeholders and tags stay as they are spelled, because the model of a service reads them so.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier
from sentencex import segment

from dragoman.model.data.sources.alignment import Pair

LANGUAGES = ("en", "de", "fr", "cs")
MAX_CHARACTERS = 600
# A text that is shorter tells little about its language.
MIN_CHARACTERS_TO_IDENTIFY = 40
# The longer side may have this times the characters of the other, and a few more.
MAX_RATIO, SHORT_CHARACTERS = 2.2, 12
MIN_LETTERS, MIN_LETTERS_SHARE = 2, 0.5

PLACEHOLDER = re.compile(
    r"</?[A-Za-z][^<>]*>|\{\{[^{}]*\}\}|[$#%]?\{[^{}]*\}|\$\([\w. ]*\)|\$[A-Za-z_]\w*|\$\d|%[A-Za-z_]\w+%|%%"
    r"|%(?:\(\w+\))?(?:\d{1,2}\$)?[-+#0']*\d*(?:\.\d+)?(?:hh|h|ll|l|z|t)?[diouxXeEfgGcsSpL@]|%\d|https?://[^\s<>\"')]+"
)
_MNEMONIC_AT_END = re.compile(r" ?\([&_~]\w\)")
_BREAK = re.compile(r"</?(?:p|br|li|ul|ol|div|h[1-6]|table|tr|td|dl|dt|dd)\b[^<>]*>", re.IGNORECASE)
# A name in a program: letters that a mark joins.
_NAME = re.compile(r"[^\s<>{}%]*\w[._/\\=]\w\S*")
_INVISIBLE = re.compile("[\u0000-\u0008\u000b-\u001f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
# Messages that choose among forms by a number or a name.
_CHOICE = re.compile(r"plural,|select,|\{\{#|%if")
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[^\W\d_]+")


class Reason(StrEnum):
    """Why a pair is dropped, in the order of the checks."""

    EMPTY = "no letters"
    COPY = "not translated"
    LONG = "long"
    CODE = "code"
    CHOICE = "choice of forms"
    RATIO = "ratio of lengths"
    PLACEHOLDERS = "other placeholders"
    NUMBERS = "other numbers"
    LANGUAGE = "other language"


def clean_pair(pair: Pair, mnemonics: str, dropped: Counter[Reason]) -> Iterator[tuple[str, str]]:
    """Yields the sentences of a pair with their translations, or the whole pair if their numbers differ."""
    texts = _plain(pair.english), _plain(pair.other)
    if mnemonics:
        texts = _without_mnemonics(*texts, mnemonics), _without_mnemonics(*texts[::-1], mnemonics)
    for english, other in _aligned([re.split(r"\s*\n\s*", text) for text in texts], " "):
        sentences = [list(map(str.strip, segment(*item))) for item in (("en", english), (pair.language, other))]
        for sentence in _aligned(sentences, " "):
            reason = find_fault(*sentence, pair.language)
            if reason is None:
                yield sentence
            else:
                dropped[reason] += 1


def _aligned(parts: list[list[str]], joint: str) -> list[tuple[str, str]]:
    """Returns the parts of two texts in pairs, or the whole texts if their numbers differ."""
    first, second = parts
    if len(first) == len(second):
        return list(zip(first, second, strict=True))
    return [(joint.join(first), joint.join(second))]


def _plain(text: str) -> str:
    text = html.unescape(_BREAK.sub("\n", text)).replace("\u00a0", " ").replace("\u202f", " ")
    return "\n".join(" ".join(line.split()) for line in _INVISIBLE.sub("", text).strip().split("\n"))


def _without_mnemonics(text: str, translation: str, marks: str) -> str:
    """Removes marks before letters, but not inside of words that the translation has too, such as max_size."""
    first, inside = re.compile(rf"(?<![^\W_])[{marks}]+(?=\w)"), re.compile(rf"(?<=[^\W_])[{marks}](?=\w)")
    shared = set(translation.split())

    def plain(found: re.Match[str]) -> str:
        word = first.sub("", found[0])
        return word if word in shared else inside.sub("", word)

    return re.sub(r"\S+", plain, _MNEMONIC_AT_END.sub("", text))


def find_fault(english: str, other: str, language: str) -> Reason | None:
    """Returns why a pair teaches nothing, or None."""
    sides = _Sides(english, other, language)
    return next((reason for reason, has_fault in _CHECKS.items() if has_fault(sides)), None)


class _Sides:
    """A pair with its texts without placeholders, and their letters."""

    def __init__(self, english: str, other: str, language: str) -> None:
        self.texts = english, other
        self.languages = "en", language
        self.bare = [PLACEHOLDER.sub(" ", text) for text in self.texts]
        self.letters = [sum(map(len, _WORD.findall(text))) for text in self.bare]
        self.lengths = sorted(map(len, self.texts))

    def has_other(self, parts: re.Pattern[str], texts: Sequence[str]) -> bool:
        """Returns whether the sides do not have the same parts, in any order."""
        english, other = (Counter(parts.findall(text)) for text in texts)
        return english != other


_CHECKS: dict[Reason, Callable[[_Sides], bool]] = {
    Reason.EMPTY: lambda sides: min(sides.letters) < MIN_LETTERS,
    Reason.COPY: lambda sides: sides.texts[0] == sides.texts[1] and " " in sides.texts[0],
    Reason.LONG: lambda sides: sides.lengths[1] > MAX_CHARACTERS,
    Reason.CODE: lambda sides: any(map(_is_code, sides.texts, sides.bare, sides.letters)),
    Reason.CHOICE: lambda sides: any(map(_CHOICE.search, sides.texts)),
    Reason.RATIO: lambda sides: sides.lengths[1] > MAX_RATIO * sides.lengths[0] + SHORT_CHARACTERS,
    Reason.PLACEHOLDERS: lambda sides: sides.has_other(PLACEHOLDER, sides.texts),
    Reason.NUMBERS: lambda sides: sides.has_other(_NUMBER, sides.bare),
    Reason.LANGUAGE: lambda sides: not all(map(_is_in, sides.bare, sides.languages)),
}


def _is_code(text: str, bare: str, letters: int) -> bool:
    """Returns whether a text is a name in a program, or has more marks than letters."""
    return _NAME.fullmatch(text) is not None or letters < MIN_LETTERS_SHARE * len("".join(bare.split()))


def _is_in(text: str, language: str) -> bool:
    text = " ".join(text.split())
    return len(text) < MIN_CHARACTERS_TO_IDENTIFY or _identifier().classify(text)[0] == language


@cache
def _identifier() -> LanguageIdentifier:
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages(list(LANGUAGES))
    return identifier
