r"""Escapes of strings of programs, such as `\n` and `\u00e9`."""

import re

# A line end with a backslash before it means nothing, nor do blanks after it.
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(?:\r\n|\r|\n)[ \t\f]*+|(.))")
_APPLE = re.compile(r"\\(?:(?P<HEX>U)(?=[0-9A-Fa-f]{4})|(?P<OCTAL>[0-7]{1,3})|[\s\S])")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_WRITTEN = str.maketrans({"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f"})
_NOT_ASCII = re.compile(r"[^\0-\x7f]")


def read_escapes(text: str, *, apple: bool = False) -> str:
    r"""Returns what a text stands for; U+FFFD stands for a half of a surrogate pair.

    Strings of Apple may have `\U00e9`, and `\101` in octal digits; U+FFFD stands for those outside of ASCII.
    """
    if "\\" not in text:
        return text
    read = _ESCAPE.sub(_character, _APPLE.sub(_common, text) if apple else text)
    return read.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _common(found: re.Match[str]) -> str:
    """Returns the escape that all strings may have in place of one of Apple's."""
    if not found["OCTAL"]:
        return r"\u" if found["HEX"] else found[0]
    code = int(found["OCTAL"], 8)
    return f"\\u{code if chr(code).isascii() else 0xFFFD:04x}"


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
