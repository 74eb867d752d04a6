"""The directions of a model: listed ones, or all pairs of the languages of a multilingual model.

A multilingual model of 200 languages has 40,000 directions, which are made on demand. Languages are found
by any of their codes; see `language_codes`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Protocol

from dragoman.serve.bundle.language_codes import language_code
from dragoman.serve.bundle.manifest import BundleDirection, GoldenSentence, Manifest, Multilingual


class ListedDirections:
    """Directions that a bundle lists."""

    def __init__(self, directions: Sequence[BundleDirection]) -> None:
        self._listed = tuple(directions)
        self._by_codes: dict[tuple[str, str], BundleDirection] = {}
        for direction in directions:
            self._by_codes.setdefault((language_code(direction.source), language_code(direction.target)), direction)
        self.codes: Mapping[str, str] = {code.lower(): code for pair in self._by_codes for code in pair}

    def __iter__(self) -> Iterator[BundleDirection]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    def __str__(self) -> str:
        return ", ".join(map(str, self._listed))

    def summary(self) -> tuple[str, ...]:
        """Returns the directions."""
        return tuple(map(str, self._listed))

    def find(self, source: str, target: str) -> BundleDirection | None:
        """Returns the direction between two languages; None: there is none."""
        return self._by_codes.get((language_code(source), language_code(target)))

    def matching(self, source: str, target: str) -> Iterable[BundleDirection]:
        """Yields the directions with the given languages; an empty one fits every language."""
        wanted = language_code(source), language_code(target)
        for codes, direction in self._by_codes.items():
            if wanted[0] in ("", codes[0]) and wanted[1] in ("", codes[1]):
                yield direction

    def pairs(self) -> Iterable[tuple[str, str]]:
        """Yields the codes of sources and targets of all directions."""
        return self._by_codes

    def sources_of(self, target: str) -> Collection[str]:
        """Returns the codes of languages that are translated into a language; an empty one fits every language."""
        wanted = language_code(target)
        return {first for first, last in self._by_codes if wanted in ("", last)}


class AllPairs:
    """The directions of a multilingual model."""

    def __init__(self, multilingual: Multilingual) -> None:
        self._multilingual = multilingual
        self._by_code = {language_code(language.language): language for language in multilingual.languages}
        self.codes: Mapping[str, str] = {code.lower(): code for code in self._by_code}

    def __iter__(self) -> Iterator[BundleDirection]:
        return (self._pair(*codes) for codes in permutations(self._by_code, 2))

    def __len__(self) -> int:
        return len(self._by_code) * (len(self._by_code) - 1)

    def __str__(self) -> str:
        return f"any two of {' '.join(item.language for item in self._multilingual.languages)}"

    def summary(self) -> tuple[str, ...]:
        """Returns how many languages there are."""
        return (f"any two of {len(self._by_code)} languages",)

    def find(self, source: str, target: str) -> BundleDirection | None:
        """Returns the direction between two languages; None: there is none."""
        codes = language_code(source), language_code(target)
        known = codes[0] in self._by_code and codes[1] in self._by_code
        return self._pair(*codes) if known and codes[0] != codes[1] else None

    def matching(self, source: str, target: str) -> Iterable[BundleDirection]:
        """Yields the directions with the given languages; an empty one fits every language."""
        sources = self._by_code if not source else [language_code(source)]
        targets = self._by_code if not target else [language_code(target)]
        pairs = ((first, last) for first in sources for last in targets)
        return (found for pair in pairs if (found := self.find(*pair)) is not None)

    def pairs(self) -> Iterable[tuple[str, str]]:
        """Yields the codes of sources and targets of all directions."""
        return permutations(self._by_code, 2)

    def sources_of(self, target: str) -> Collection[str]:
        """Returns the codes of languages that are translated into a language; an empty one fits every language."""
        wanted = language_code(target)
        return self._by_code.keys() - {wanted} if not wanted or wanted in self._by_code else ()

    def _pair(self, source: str, target: str) -> BundleDirection:
        spec, first, last = self._multilingual, self._by_code[source], self._by_code[target]
        return BundleDirection(
            source=first.language,
            target=last.language,
            source_prefix=(*spec.source_prefix, (first if spec.before_source == "source" else last).token_id),
            start=(last.token_id,) if spec.starts else (),
        )


# Both classes hold at least one direction, in a fixed order.
Directions = ListedDirections | AllPairs


class HasDirections(Protocol):
    """What has either directions or languages, as a manifest."""

    @property
    def directions(self) -> Sequence[BundleDirection]:
        """The listed directions."""

    @property
    def multilingual(self) -> Multilingual | None:
        """The languages of a multilingual model."""


def directions_of(owner: HasDirections) -> Directions:
    """Returns the directions of a bundle or a model."""
    return ListedDirections(owner.directions) if owner.multilingual is None else AllPairs(owner.multilingual)


def start_tokens(owner: HasDirections) -> int:
    """Returns the length of the longest start of a direction."""
    if owner.multilingual is not None:
        return int(owner.multilingual.starts)
    return max(len(direction.start) for direction in owner.directions)


def check_golden(manifest: Manifest, golden: Iterable[GoldenSentence]) -> None:
    """Checks golden sentences against the directions; raises ValueError with the number of the first wrong one."""
    directions = directions_of(manifest)
    for number, sentence in enumerate(golden):
        if directions.find(*sentence.languages) is None:
            languages = f"{sentence.source_language}-{sentence.target_language}"
            raise ValueError(f"{number}: {languages}: expected one of {directions}")
