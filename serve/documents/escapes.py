r"""Escapes of strings of programs, such as `\n` and `\u00e9`."""

import re

# A line end with a backslash before it means nothing, nor do blanks after it.
_ESCAPE = re.compile(r"\\(?:[uU]([0-9A-Fa-f]{4})|(?:\r\n|\r|\n)[ \t\f]*+|(.))")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_WRITTEN = str.maketrans({"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f"})
_NOT_ASCII = re.compile(r"[^\0-\x7f]")


def read_escapes(text: str) -> str:
    """Returns what a text stands for; U+FFFD stands for a half of a surrogate pair."""
    if "\\" not in text:
        return text
    read = _ESCAPE.sub(_character, text)
    return read.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _character(found: re.Match[str]) -> str:
    code, character = found.groups()
    return chr(int(code, 16)) if code else _NAMED.get(character, character) if character else ""


def write_escapes(text: str, quoted: str = "") -> str:
    """Returns a text with escapes for control characters, backslashes, and the characters of `quoted`."""
    written = text.translate(_WRITTEN)
    return re.sub(f"([{quoted}])", r"\\\1", written) if quoted else written


def write_ascii(text: str) -> str:
    r"""Returns a text with escapes such as `\u00e9` for all characters outside of ASCII."""
    return _NOT_ASCII.sub(_code_units, text)


def _code_units(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
