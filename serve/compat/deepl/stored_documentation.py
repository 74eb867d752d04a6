"""The OpenAPI descriptions of DeepL's routes of glossaries and documents."""

from typing import Any

# Summary, response, parameters and required parameters of a handler.
Route = tuple[str, dict[str, Any], dict[str, Any], tuple[str, ...]]

_TEXT: dict[str, Any] = {"type": "string"}
_INTEGER: dict[str, Any] = {"type": "integer"}
_PAIR = {"source_lang": _TEXT, "target_lang": _TEXT}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _list_of(name: str, item: dict[str, Any]) -> dict[str, Any]:
    return _object(**{name: {"type": "array", "items": item}})


_ENTRIES: dict[str, Any] = {"entries": _TEXT, "entries_format": {"type": "string", "enum": ["tsv", "csv"]}}
_DICTIONARY = {**_object(**_PAIR, **_ENTRIES), "required": [*_PAIR, *_ENTRIES]}
_DICTIONARIES = {"type": "array", "items": _DICTIONARY}
_COUNTED = _object(**_PAIR, entry_count=_INTEGER)
_COMMON: dict[str, Any] = {
    "glossary_id": _TEXT,
    "name": _TEXT,
    "creation_time": {"type": "string", "format": "date-time"},
}
_SINGLE = _object(**_COMMON, **_PAIR, ready={"type": "boolean"}, entry_count=_INTEGER)
_WHOLE = _object(**_COMMON, dictionaries={"type": "array", "items": _COUNTED})
_ALL_OF_PAIR = (*_PAIR, *_ENTRIES)
GLOSSARY_ROUTES: dict[str, Route] = {
    "pairs": ("Lists the pairs of languages of glossaries", _list_of("supported_languages", _object(**_PAIR)), {}, ()),
    "create_one": (
        "Creates a glossary for one pair of languages",
        _SINGLE,
        {"name": _TEXT, **_PAIR, **_ENTRIES},
        ("name", *_ALL_OF_PAIR),
    ),
    "list_single": ("Lists the glossaries for one pair of languages", _list_of("glossaries", _SINGLE), {}, ()),
    "get_single": ("Returns a glossary for one pair of languages", _SINGLE, {}, ()),
    "delete": ("Deletes a glossary", {}, {}, ()),
    "entries_text": ("Returns the entries of a glossary", _TEXT, {}, ()),
    "create": (
        "Creates a glossary with a dictionary per pair of languages",
        _WHOLE,
        {"name": _TEXT, "dictionaries": _DICTIONARIES},
        ("name", "dictionaries"),
    ),
    "list_all": ("Lists the glossaries", _list_of("glossaries", _WHOLE), {}, ()),
    "get": ("Returns a glossary without its entries", _WHOLE, {}, ()),
    "change": (
        "Renames a glossary, and adds or replaces entries",
        _WHOLE,
        {"name": _TEXT, "dictionaries": _DICTIONARIES},
        (),
    ),
    "entries": (
        "Returns the entries of one dictionary",
        _list_of("dictionaries", _object(**_PAIR, **_ENTRIES)),
        dict(_PAIR),
        tuple(_PAIR),
    ),
    "put_dictionary": ("Replaces one dictionary, or adds it", _COUNTED, {**_PAIR, **_ENTRIES}, _ALL_OF_PAIR),
    "delete_dictionary": ("Deletes one dictionary", {}, dict(_PAIR), tuple(_PAIR)),
}
_ID_AND_KEY = {"document_id": _TEXT, "document_key": _TEXT}
_KEY = {"document_key": _TEXT}
DOCUMENT_ROUTES: dict[str, Route] = {
    "upload": (
        "Stores a document for translation",
        _object(**_ID_AND_KEY),
        {
            "file": {"type": "string", "format": "binary"},
            "filename": _TEXT,
            **_PAIR,
            "formality": _TEXT,
            "glossary_id": _TEXT,
            "glossary_ids": _TEXT,
        },
        ("file", "target_lang"),
    ),
    "status": (
        "Returns the status of a document",
        _object(
            document_id=_TEXT,
            status={"type": "string", "enum": ["queued", "translating", "done", "error"]},
            seconds_remaining=_INTEGER,
            billed_characters=_INTEGER,
            error_message=_TEXT,
        ),
        dict(_KEY),
        tuple(_KEY),
    ),
    "result": ("Returns a translated document once", {"type": "string", "format": "binary"}, dict(_KEY), tuple(_KEY)),
}
