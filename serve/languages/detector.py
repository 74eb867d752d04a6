"""Detects the language of a text among candidates, with the model of py3langid.

The model takes 78 MiB and 0.7 s to load, so it is loaded when a language is first to be detected.
"""

from collections.abc import Iterable
from copy import copy
from functools import cache, lru_cache
from threading import Lock
from typing import Any

# Further characters hardly change the result.
MAX_CHARACTERS = 2000
# Less probable languages are left out.
MIN_CONFIDENCE = 0.01
# Label of text in no language, such as codes; it takes probability from the candidates.
_NO_LANGUAGE = "zxx"
# Labels of languages that models name differently.
_LABELS = {"fil": "tl", "nb": "no", "pb": "pt", "zt": "zh"}
_loading = Lock()


def is_loaded() -> bool:
    """Returns whether the model is loaded."""
    return _model.cache_info().currsize > 0


def load() -> None:
    """Loads the model once; takes 0.7 s, so not for the event loop. Thread-safe."""
    with _loading:
        _model()


def detect_language(text: str, candidates: Iterable[str]) -> list[tuple[str, float]]:
    """Returns codes of likely languages and their probabilities, the best first; empty: the text gives no evidence.

    Reads the start of the text. The probabilities add up to at most 1. Thread-safe.

    Args:
        text: without markup.
        candidates: ISO 639-1 codes; those that the model does not know are never found.
    """
    start = text[:MAX_CHARACTERS]
    if not any(map(str.isalpha, start)):
        return []
    load()
    codes, identifier = _restrict(tuple(sorted(candidates)))
    ranked = identifier.rank(start)
    if ranked[0][1] == ranked[-1][1]:  # none of the text's bytes is a feature of the model
        return []
    found = [(codes[label], probability) for label, probability in ranked if label != _NO_LANGUAGE]
    return [result for result in found if result[1] >= MIN_CONFIDENCE]


@cache
def _model() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415 - only if a language is detected

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@lru_cache(maxsize=64)
def _restrict(candidates: tuple[str, ...]) -> tuple[dict[str, str], Any]:
    """Returns the candidate of each label, and the model of these labels alone."""
    model = copy(_model())
    known = frozenset(model.labels)
    codes: dict[str, str] = {}
    # A candidate with the label's own name comes first.
    for code in sorted(candidates, key=lambda candidate: candidate in _LABELS):
        label = _LABELS.get(code, code)
        if label in known:
            codes.setdefault(label, code)
    model.set_languages({*codes, _NO_LANGUAGE})
    return codes, model
