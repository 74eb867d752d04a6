"""English names of languages by ISO 639-1 code, and regional codes."""

import re
from pathlib import Path

_FILE = Path(__file__).with_name("names.tsv")
_NAMES = dict(line.split("\t") for line in _FILE.read_text("utf-8").splitlines())
_CODES = {name.lower(): code for code, name in _NAMES.items()}
# Served codes for a regional code in lower case, the best first. Argos Translate names two models by pb and zt.
_REGIONAL = {
    "pt-br": ("pb", "pt"),
    "zh-cn": ("zh",),
    "zh-hans": ("zh",),
    "zh-hant": ("zt", "zh-hant"),
    "zh-hk": ("zt", "zh-hant"),
    "zh-sg": ("zh",),
    "zh-tw": ("zt", "zh-hant"),
}
# Language, script and region.
_TAG = re.compile(r"([a-z]{2,3})((?:[-_][a-z]{4})?)((?:[-_](?:[a-z]{2}|[0-9]{3}))?)", re.IGNORECASE | re.ASCII)


def language_name(code: str) -> str:
    """Returns the English name of a language; for an unknown one, its code."""
    return _NAMES.get(code, code)


def language_tag(name: str) -> str:
    """Returns how a file names a language: `de` for `DE` and `German`, `de-AT` for `de-at`; another text stays."""
    text = name.strip()
    if text.lower() in _CODES:
        return _CODES[text.lower()]
    match = _TAG.fullmatch(text)
    return text if match is None else f"{match[1].lower()}{match[2].title()}{match[3].upper()}"


def served_codes(name: str) -> tuple[str, ...]:
    """Returns the lower-case codes that a code in any case and region, or an English name, may mean, the best first."""
    lower = name.strip().lower()
    if lower in _CODES:
        return (_CODES[lower],)
    lower = lower.replace("_", "-")
    return _REGIONAL.get(lower) or tuple(dict.fromkeys((lower, lower.partition("-")[0])))
