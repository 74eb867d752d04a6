"""Reads keys and texts of simple formats: .properties, JSON, Chromium's .pak, gettext's .mo and .po, a dictionary."""

import json
import re
import struct
from collections.abc import Iterator
from itertools import pairwise

import polib

from dragoman.model.data.sources.readers.messages import CONTEXT_END, Messages
from dragoman.model.errors import CorpusError

_PROPERTY = re.compile(r"[ \t\f]*(?P<KEY>(?:[^\\\s:=]|\\.)+)[ \t\f]*[:=]?[ \t\f]*(?P<TEXT>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_PAK_VERSION, _PAK_UTF8 = 5, 1
# Grammar, fields of knowledge and remarks: {f}, [med.], /abbr./, <synonym>, (remark).
_REMARKS = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|/[^/]*/|<[^<>]*>|\([^()]*\)|\b(?:jd?[nm]?\.|etw\.|sb\.|sth\.)")


def read_properties(content: bytes) -> Messages:
    """Returns the properties of a resource bundle of Java or Mozilla, in UTF-8 or with escapes."""
    text = re.sub(r"\\\r?\n[ \t]*", "", content.decode("utf-8-sig"))
    lines = (line for line in re.split(r"\r?\n", text) if line.strip() and not line.lstrip().startswith(("#", "!")))
    found = (_PROPERTY.fullmatch(line) for line in lines)
    return {_unescaped(result["KEY"]): _unescaped(result["TEXT"]) for result in found if result}


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2]), text)


def read_json(content: bytes) -> Messages:
    """Returns the texts of a JSON document; the key is the path of member names and places."""
    return dict(_leaves(json.loads(content.decode("utf-8-sig")), ""))


def _leaves(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for name, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(member, f"{path}/{name}")


def read_pak(content: bytes) -> Messages:
    """Returns the strings of a data pack of Chromium, version 5, in UTF-8.

    The header has version, encoding, and the numbers of resources and aliases; an entry per resource and one for the
    end have number and place (tools/grit/grit/format/data_pack.py).
    """
    version, encoding, resources, _ = struct.unpack_from("<IB3xHH", content)
    if (version, encoding) != (_PAK_VERSION, _PAK_UTF8):
        raise CorpusError(f"expected a data pack of version 5 in UTF-8, got version {version}, encoding {encoding}")
    entries = [struct.unpack_from("<HI", content, 12 + 6 * index) for index in range(resources + 1)]
    spans = ((number, start, end) for (number, start), (_, end) in pairwise(entries))
    return {str(number): content[start:end].decode(errors="replace") for number, start, end in spans}


def read_mo(content: bytes) -> Messages:
    """Returns the translations of a compiled catalog of gettext."""
    return _catalog(polib.mofile(content))


def read_po(content: bytes) -> Messages:
    """Returns the translations of a catalog, without those that are obsolete or fuzzy."""
    return _catalog(polib.pofile(content.decode("utf-8-sig")))


def _catalog(catalog: polib.MOFile | polib.POFile) -> Messages:
    # The key of a text is its context, a mark and its English message.
    messages: Messages = {}
    for entry in catalog.translated_entries():
        context = f"{entry.msgctxt or ''}{CONTEXT_END}"
        if entry.msgid_plural:
            # The first form belongs to one, the last to many, in German, French and Czech.
            messages[f"{context}{entry.msgid}"] = entry.msgstr_plural[min(entry.msgstr_plural)]
            messages[f"{context}{entry.msgid_plural}"] = entry.msgstr_plural[max(entry.msgstr_plural)]
        elif entry.msgid:
            messages[f"{context}{entry.msgid}"] = entry.msgstr
    return messages


def read_dictionary(content: bytes) -> Messages:
    """Returns the German word of each English one in the Ding dictionary, the first of its synonyms.

    A line is `German | other forms :: English | other forms`, each with synonyms after semicolons. A key begins with
    its line.
    """
    messages: Messages = {}
    for number, line in enumerate(content.decode().splitlines()):
        german, mark, english = line.partition("::")
        sides = [side.split("|") for side in (german, english)]
        if line.startswith("#") or not mark or len(sides[0]) != len(sides[1]):
            continue
        for place, (word, translation) in enumerate(zip(*sides, strict=True)):
            first, second = _first_synonym(word), _first_synonym(translation)
            if first and second:
                messages[f"{number // 1000}|{number}/{place}{CONTEXT_END}{second}"] = first
    return messages


def _first_synonym(synonyms: str) -> str:
    return " ".join(_REMARKS.sub(" ", synonyms.partition(";")[0]).split()).strip(" ,")
