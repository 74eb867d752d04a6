"""Glossary bombs: files that are small as text, and large as what a careless parser makes of them."""

import random
from collections.abc import Iterator

from dragoman.serve.glossaries.files import EntriesFormat

Bomb = tuple[EntriesFormat, str]


def glossary_bombs(seed: int, size_bytes: int) -> Iterator[Bomb]:
    """Yields a bomb of each kind, of about this size; the seed chooses their proportions."""
    chance = random.Random(seed)
    yield "tbx", _terms_times_translations(size_bytes, chance.uniform(0.3, 0.7))
    yield "tbx", _concept(size_bytes, "en", "de")
    yield "tbx", _concept(size_bytes, *(f"l{number}" for number in range(size_bytes // 60)))
    yield "tbx", f"<tbx><conceptEntry><langSec xml:lang='en'><termSec><term>{_breaks(size_bytes)}</term>"
    yield "tbx", f"<tbx>{_breaks(size_bytes)}</tbx>"
    yield "tbx", "<tbx>" + "<conceptEntry>" * (size_bytes // 14)
    separators: dict[EntriesFormat, str] = {"tsv": "\t", "csv": ","}
    for entries_format, separator in separators.items():
        columns = chance.randrange(2, 200)
        yield entries_format, separator * size_bytes
        yield entries_format, "\n" * size_bytes
        yield entries_format, "x" * size_bytes
        yield entries_format, ("a" + separator * columns + "\n") * (size_bytes // (columns + 2))
        yield entries_format, "".join(f"{number}{separator}b\n" for number in range(size_bytes // 8))
        yield entries_format, f"a{separator}" + "b\r" * (size_bytes // 2)
    yield "csv", '"' * size_bytes
    yield "csv", '"a\n",' * (size_bytes // 5)


def _terms_times_translations(size_bytes: int, share: float) -> str:
    """Returns a concept whose terms and translations make an entry of many translations for each term."""
    terms = size_bytes // 32
    sources = int(terms * share)
    return f"<tbx>{_concept_of(en=sources, de=terms - sources)}</tbx>"


def _concept(size_bytes: int, *languages: str) -> str:
    terms = max(1, size_bytes // 32 // len(languages))
    return f"<tbx>{_concept_of(**dict.fromkeys(languages, terms))}</tbx>"


def _concept_of(**terms: int) -> str:
    sections = (
        f"<langSec xml:lang='{language}'>"
        + "".join(f"<tig><term>{number}</term></tig>" for number in range(count))
        + "</langSec>"
        for language, count in terms.items()
    )
    return f"<conceptEntry>{''.join(sections)}</conceptEntry>"


def _breaks(size_bytes: int) -> str:
    """Returns text that expat reports in many pieces."""
    return "a&lt;" * (size_bytes // 5)
