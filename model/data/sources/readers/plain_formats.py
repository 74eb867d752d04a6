"""Reads keys and texts of simple formats: .properties, JSON, JSON with comments in a script, Chromium's .pak."""

import json
import re
import struct
from collections.abc import Iterator
from itertools import pairwise

from dragoman.model.data.sources.errors import SourceError
from dragoman.model.data.sources.readers.messages import Messages

_PROPERTY = re.compile(r"[ \t\f]*(?P<KEY>(?:[^\\\s:=]|\\.)+)[ \t\f]*[:=]?[ \t\f]*(?P<TEXT>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_PAK_VERSION, _PAK_UTF8 = 5, 1


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
        raise SourceError(f"expected a data pack of version 5 in UTF-8, got version {version}, encoding {encoding}")
    entries = [struct.unpack_from("<HI", content, 12 + 6 * index) for index in range(resources + 1)]
    spans = ((number, start, end) for (number, start), (_, end) in pairwise(entries))
    return {str(number): content[start:end].decode(errors="replace") for number, start, end in spans}
