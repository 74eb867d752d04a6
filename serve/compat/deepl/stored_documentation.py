"""The OpenAPI descriptions of DeepL's routes of glossaries and documents."""

from typing import Any

from dragoman.serve.edge.schemas import BINARY, BOOLEAN, INTEGER, TEXT, list_of, object_of

# Summary, response, parameters and required parameters of a handler.
Route = tuple[str, dict[str, Any], dict[str, Any], tuple[str, ...]]

_PAIR = {"source_lang": TEXT, "target_lang": TEXT}
_PAIRS = list_of(object_of(**_PAIR))
_ENTRIES: dict[str, Any] = {"entries": TEXT, "entries_format": {"type": "string", "enum": ["tsv", "csv"]}}
_DICTIONARIES = list_of(object_of(" ".join((*_PAIR, *_ENTRIES)), **_PAIR, **_ENTRIES))
_COUNTED = object_of(**_PAIR, entry_count=INTEGER)
_TIME = {"type": "string", "format": "date-time"}
_COMMON: dict[str, Any] = {"glossary_id": TEXT, "name": TEXT, "creation_time": _TIME}
_SINGLE = object_of(**_COMMON, **_PAIR, ready=BOOLEAN, entry_count=INTEGER)
_WHOLE = object_of(**_COMMON, dictionaries=list_of(_COUNTED))
_ALL_OF_PAIR = (*_PAIR, *_ENTRIES)
GLOSSARY_ROUTES: dict[str, Route] = {
    "pairs": ("Lists the pairs of languages of glossaries", object_of(supported_languages=_PAIRS), {}, ()),
    "create_one": (
        "Creates a glossary for one pair of languages",
        _SINGLE,
        {"name": TEXT, **_PAIR, **_ENTRIES},
        ("name", *_ALL_OF_PAIR),
    ),
    "list_single": ("Lists the glossaries for one pair of languages", object_of(glossaries=list_of(_SINGLE)), {}, ()),
    "get_single": ("Returns a glossary for one pair of languages", _SINGLE, {}, ()),
    "delete": ("Deletes a glossary", {}, {}, ()),
    "entries_text": ("Returns the entries of a glossary", TEXT, {}, ()),
    "create": (
        "Creates a glossary with a dictionary per pair of languages",
        _WHOLE,
        {"name": TEXT, "dictionaries": _DICTIONARIES},
        ("name", "dictionaries"),
    ),
    "list_all": ("Lists the glossaries", object_of(glossaries=list_of(_WHOLE)), {}, ()),
    "get": ("Returns a glossary without its entries", _WHOLE, {}, ()),
    "change": (
        "Renames a glossary, and adds or replaces entries",
        _WHOLE,
        {"name": TEXT, "dictionaries": _DICTIONARIES},
        (),
    ),
    "entries": (
        "Returns the entries of one dictionary",
        object_of(dictionaries=list_of(object_of(**_PAIR, **_ENTRIES))),
        dict(_PAIR),
        tuple(_PAIR),
    ),
    "put_dictionary": ("Replaces one dictionary, or adds it", _COUNTED, {**_PAIR, **_ENTRIES}, _ALL_OF_PAIR),
    "delete_dictionary": ("Deletes one dictionary", {}, dict(_PAIR), tuple(_PAIR)),
}
_ID_AND_KEY = {"document_id": TEXT, "document_key": TEXT}
_KEY = {"document_key": TEXT}
DOCUMENT_ROUTES: dict[str, Route] = {
    "upload": (
        "Stores a document for translation",
        object_of(**_ID_AND_KEY),
        {"file": BINARY, "filename": TEXT, **_PAIR, "formality": TEXT, "glossary_id": TEXT, "glossary_ids": TEXT},
        ("file", "target_lang"),
    ),
    "status": (
        "Returns the status of a document",
        object_of(
            document_id=TEXT,
            status={"type": "string", "enum": ["queued", "translating", "done", "error"]},
            seconds_remaining=INTEGER,
            billed_characters=INTEGER,
            error_message=TEXT,
        ),
        dict(_KEY),
        tuple(_KEY),
    ),
    "result": ("Returns a translated document once", BINARY, dict(_KEY), tuple(_KEY)),
}
