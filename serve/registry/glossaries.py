"""The terms of a request: its own, and those of stored glossaries."""

from typing import TYPE_CHECKING

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.host.threads import TERMS
from dragoman.serve.protect.terms.entry import EntryError, check_entries
from dragoman.serve.protect.terms.matching import TermIndex
from dragoman.serve.translation.fields import shown
from dragoman.serve.translation.request import TranslateRequest

if TYPE_CHECKING:
    from dragoman.serve.glossaries.store import Glossaries

MAX_TERMS = 1000
MAX_GLOSSARIES = 5


async def find_indexes(
    request: TranslateRequest, stored: "Glossaries | None", source_language: str, target_language: str
) -> tuple[TermIndex, ...]:
    """Returns the terms of a request, those that count first.

    Args:
        stored: the glossaries of the client; None: there are none.

    Raises:
        InvalidRequestError: if a term is invalid, or there are too many.
        GlossaryNotFoundError: if a glossary is unknown or has no dictionary for the languages.
    """
    indexes = list[TermIndex]()
    if request.terms:
        indexes.append(_index(request))
    if len(request.glossary) > MAX_GLOSSARIES:
        problem = f"{len(request.glossary)} glossaries, expected at most {MAX_GLOSSARIES}"
        raise InvalidRequestError("glossary", problem)
    for glossary_id in request.glossary:
        if stored is None:
            problem = f"{shown(glossary_id)}, expected none: the server has no --state-dir"
            raise InvalidRequestError("glossary", problem)
        # The database may be on another machine.
        index = await TERMS.run(_load, stored, glossary_id, request, (source_language, target_language))
        if index is not None:
            indexes.append(index)
    return tuple(indexes)


def _load(
    stored: "Glossaries", glossary_id: str, request: TranslateRequest, languages: tuple[str, str]
) -> TermIndex | None:
    """Returns the index of a dictionary; None: there is none for a detected language."""
    if request.source_detected:
        pairs = (
            (dictionary.source_language, dictionary.target_language)
            for dictionary in stored.get(glossary_id).dictionaries
        )
        if languages not in pairs:
            return None
    return stored.index(glossary_id, *languages)


def _index(request: TranslateRequest) -> TermIndex:
    if len(request.terms) > MAX_TERMS:
        raise InvalidRequestError("terms", f"{len(request.terms)} terms, expected at most {MAX_TERMS}")
    try:
        return TermIndex(check_entries(request.terms))
    except EntryError as error:
        raise InvalidRequestError(f"terms[{error.index}]", error.problem) from error
