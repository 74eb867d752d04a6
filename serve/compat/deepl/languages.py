"""Languages as DeepL's interface lists and names them."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from dragoman.serve.compat.served_languages import ServedLanguages
from dragoman.serve.languages.names import language_name
from dragoman.tables import read_table

_TABLE: dict[str, Any] = read_table(__file__, "languages.yaml")
_WRITTEN: dict[str, str] = _TABLE["written"]
RESOURCES: Mapping[str, Mapping[str, Mapping[str, bool]]] = _TABLE["resources"]


def written_code(code: str) -> str:
    """Returns the code of a source language as clients see it."""
    return _WRITTEN.get(code, code).upper()


def written_time(seconds: float) -> str:
    """Returns a Unix time in the form that clients parse, as in 2026-11-25T00:00:00.000000Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def list_sources(languages: ServedLanguages) -> list[dict[str, Any]]:
    """Returns the sources of `/v2/languages`."""
    return [{"language": written_code(code), "name": language_name(code)} for code in languages.sources]


def list_targets(languages: ServedLanguages) -> list[dict[str, Any]]:
    """Returns the targets of `/v2/languages`."""
    return [
        {"language": code, "name": name, "supports_formality": False}
        for served in languages.targets
        for code, name in _variants(served)
    ]


def list_resources() -> list[dict[str, Any]]:
    """Returns the resources of `/v3/languages/resources`."""
    return [
        {"name": name, "features": [{"name": feature, **needs} for feature, needs in features.items()]}
        for name, features in RESOURCES.items()
    ]


def _variants(code: str) -> Iterable[tuple[str, str]]:
    variants: dict[str, str] = _TABLE["variants"].get(code) or {written_code(code): language_name(code)}
    return variants.items()


def list_features(languages: ServedLanguages, resource: str) -> Iterator[dict[str, Any]]:
    """Yields the languages of a resource for `/v3/languages`."""
    sources, targets = languages.sources, languages.targets
    for served in languages:
        listed = {served: language_name(served)}
        if served in targets:
            listed |= {_tag(code): name for code, name in _variants(served)}
        for code, name in listed.items():
            source = code == served and served in sources
            features = {
                name: {"status": "stable"} for name in RESOURCES[resource] if source or name != "auto_detection"
            }
            yield {
                "lang": code,
                "name": name,
                "usable_as_source": source,
                "usable_as_target": served in targets,
                "status": "stable",
                "features": features,
            }


def _tag(code: str) -> str:
    """Returns a code in the spelling of BCP 47, as in `en-US` and `zh-Hant`."""
    language, _, region = code.partition("-")
    short = len(region) == 2  # noqa: PLR2004 - regions have two letters, scripts four
    return "-".join(filter(None, (language.lower(), region if short else region.title())))
