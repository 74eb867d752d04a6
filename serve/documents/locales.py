"""Locales that files name, such as `en-US`: which of them becomes the target language."""

import re

from dragoman.serve.documents.document import DocumentRequest
from dragoman.serve.languages.names import language_name

# What requests state if the language is to be detected.
_UNKNOWN = ("", "auto")


def needs_target(locale: str, request: DocumentRequest) -> bool:
    """Returns whether a locale is that of a translation, but has another language."""
    return request.target not in _UNKNOWN and _language(locale) != _language(request.target)


def is_of_source(locale: str, request: DocumentRequest) -> bool:
    """Returns whether a locale has the source language; if that is unknown, whether it has any language."""
    if request.source in _UNKNOWN:
        return language_name(_language(locale)) != _language(locale)
    return _language(locale) == _language(request.source)


def _language(locale: str) -> str:
    return re.split("[-_]", locale.lower())[0]
