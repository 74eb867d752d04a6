"""Languages of multilingual models: their tokens in a vocabulary, and the directions that the user selects."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import yaml

from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.serve.bundle.directions import AllPairs
from dragoman.serve.bundle.language_codes import language_code
from dragoman.serve.bundle.manifest import BundleDirection, LanguageToken, Multilingual

# Language tokens of M2M100, NLLB-200, mBART and MADLAD-400: __de__, deu_Latn, de_DE, <2de>.
MADLAD_TOKEN = re.compile(r"<2([a-z]{2,3}(?:_[A-Z][a-z]{3})?)>")
M2M100_TOKEN = re.compile(r"__([a-z]{2,3})__")
_TOKENS = (M2M100_TOKEN, re.compile(r"([a-z]{3}_[A-Z][a-z]{3})"), re.compile(r"([a-z]{2}_[A-Z]{2})"), MADLAD_TOKEN)
_IN_ORDER: dict[str, str] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
M2M100_LANGUAGES, MBART50_TOKENS = (tuple(_IN_ORDER[name].split()) for name in ("m2m100", "mbart50"))


class LanguageRules(NamedTuple):
    """Where a model expects language tokens; see `dragoman.serve.bundle.manifest.Multilingual`."""

    before_source: Literal["source", "target"]
    starts: bool
    source_prefix: tuple[int, ...] = ()


FROM_SOURCE = LanguageRules(before_source="source", starts=True)
FROM_TARGET = LanguageRules(before_source="target", starts=False)


def m2m100_languages(pieces: list[str]) -> dict[str, int]:
    """Returns the languages of M2M100 and their ids; appends their tokens to pieces that lack them."""
    if not find_languages(pieces):
        pieces += [f"__{language}__" for language in M2M100_LANGUAGES]
    return find_languages(pieces)


def find_languages(pieces: Sequence[str]) -> dict[str, int]:
    """Returns the ids of the language tokens by language; an empty dictionary if there are not several."""
    for pattern in _TOKENS:
        found = {match[1]: number for number, piece in enumerate(pieces) if (match := pattern.fullmatch(piece))}
        if len(found) > 1:
            return {language_code(language).replace("_", "-"): number for language, number in found.items()}
    return {}


def select_directions(
    languages: Mapping[str, int], rules: LanguageRules, options: ImportOptions
) -> tuple[tuple[BundleDirection, ...], Multilingual | None]:
    """Returns the directions that the options select, or all; raises ImportedModelError if a language is unknown."""
    source, target = (
        None if code is None else language_code(code) for code in (options.source_language, options.target_language)
    )
    for option, language in (("source-language", source), ("target-language", target)):
        if language is not None and language not in languages:
            raise ImportedModelError(f"{option}: {language}: expected one of {', '.join(sorted(languages))}")
    tokens = tuple(LanguageToken(language=name, token_id=languages[name]) for name in sorted(languages))
    multilingual = Multilingual(languages=tokens, **rules._asdict())
    if source is None and target is None:
        return (), multilingual
    directions = tuple(AllPairs(multilingual).matching(source or "", target or ""))
    if not directions:
        raise ImportedModelError(f"target-language: {target}: expected another language than the source")
    return directions, None
