"""Variants of a sentence with its translation, for tests of markup, placeholders and glossaries.

The alignment decides which words of the translation change. A variant is a source, a translation and perhaps a glossary
entry, noun and compound with a tab between them; or nothing, if the sentence has no suitable word.
"""

import re
from collections.abc import Callable, Iterator
from itertools import count

from dragoman.model.demo.grammar import PHRASES
from dragoman.model.demo.inflection import DATA
from dragoman.model.demo.text import Text

Variant = tuple[str, ...] | None
_MAX_MARKED_WORDS = 4
_PUNCTUATION = re.compile(r"([,.?]*)$")
_NOUNS = [noun.split("/") for noun_class in DATA["nouns"].values() for noun in noun_class["words"]]
_PREFIXES = {form: DATA["compounds"][forms[0]] for forms in _NOUNS for form in forms if forms[0] in DATA["compounds"]}
_NAMES = {text.plain().english for text in PHRASES["name"]} | {place for place in DATA["places"] if place[0].isupper()}


def tagged(text: Text, random: Callable[[], float]) -> Variant:
    """Encloses a phrase and its translation in `<b>` and `</b>`."""
    english, german, links = _words(text)
    options = list(_phrases(len(english), links))
    if not options:
        return None
    start, end, german_start, german_end = options[int(random() * len(options))]
    return _enclosed(english, start, end), _enclosed(german, german_start, german_end)


def with_placeholders(text: Text, random: Callable[[], float]) -> Variant:  # noqa: ARG001 - nothing is left to chance
    """Replaces numbers in digits and names that both languages share by `{0}`, `{1}` ... in the order of the source."""
    english, german, links = _words(text)
    number = count()
    for i, j in _one_to_one(links):
        word = _PUNCTUATION.sub("", english[i])
        if word == _PUNCTUATION.sub("", german[j]) and (word.isdigit() or word in _NAMES):
            placeholder = f"{{{next(number)}}}"
            english[i], german[j] = english[i].replace(word, placeholder), german[j].replace(word, placeholder)
    return (" ".join(english), " ".join(german)) if next(number) else None


def with_term(text: Text, random: Callable[[], float]) -> Variant:
    """Translates a noun by a compound. The entry has both in the forms of the sentence: tables, Esstischen."""
    english, german, links = _words(text)
    nouns = [(i, j) for i, j in _one_to_one(links) if _PUNCTUATION.sub("", english[i]).lower() in _PREFIXES]
    if not nouns:
        return None
    i, j = nouns[int(random() * len(nouns))]
    noun = _PUNCTUATION.sub("", english[i]).lower()
    german[j] = f"{_PREFIXES[noun]}{german[j].lower()}"
    return " ".join(english), " ".join(german), f"{noun}\t{_PUNCTUATION.sub('', german[j])}"


VARIANTS: dict[str, Callable[[Text, Callable[[], float]], Variant]] = {
    "tags": tagged,
    "placeholders": with_placeholders,
    "terms": with_term,
}


def _words(text: Text) -> tuple[list[str], list[str], list[tuple[int, int]]]:
    english, german = text.plain()
    return english.split(), german.split(), list(text.alignment())


def _one_to_one(links: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for i, j in links:
        if sum(link[0] == i or link[1] == j for link in links) == 1:
            yield i, j


def _phrases(words: int, links: list[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Yields the spans of short phrases that are aligned with one span of the translation, without gaps."""
    for start in range(words):
        for end in range(start + 1, min(start + _MAX_MARKED_WORDS, words) + 1):
            inside = [link for link in links if start <= link[0] < end]
            sources, targets = {i for i, _ in inside}, {j for _, j in inside}
            if len(sources) < end - start or max(targets) - min(targets) >= len(targets):
                continue
            if all(start <= i < end for i, j in links if j in targets):
                yield start, end, min(targets), max(targets) + 1


def _enclosed(words: list[str], start: int, end: int) -> str:
    marked = [*words[start : end - 1], _PUNCTUATION.sub(r"</b>\1", words[end - 1], count=1)]
    return " ".join([*words[:start], f"<b>{marked[0]}", *marked[1:], *words[end:]])
