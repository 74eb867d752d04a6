"""Reads manual pages in the macros of man(7). Pages of equal structure are translations, paragraph by paragraph."""

import re

from dragoman.model.data.sources.readers.messages import Messages, number_blocks

_HEADINGS = frozenset({".SH", ".SS"})
_BREAKS = _HEADINGS | {".TP", ".TQ", ".PP", ".P", ".LP", ".IP", ".HP", ".br", ".sp", ".RS", ".RE", ".TH"}
# What joins the arguments of a macro for fonts.
_FONTS = dict.fromkeys((".B", ".I", ".SM", ".SB"), " ") | dict.fromkeys((".BR", ".RB", ".IR", ".RI", ".BI", ".IB"), "")
_NO_FILL, _FILL = frozenset({".nf", ".EX", ".TS"}), frozenset({".fi", ".EE", ".TE"})
_CHARACTERS = {"aq": "'", "cq": "\u2019", "oq": "\u2018", "lq": "\u201c", "rq": "\u201d", "Bq": "\u201e", "dq": '"'}
_CHARACTERS |= {"bu": "\u2022", "em": "\u2014", "en": "\u2013", "co": "\u00a9", "rs": "\\", "ti": "~", "ha": "^"}
_ESCAPE = re.compile(r"\\(?:f(?:\[\w*\]|\(..|.)|s[-+]?\d+|\((?P<TWO>..)|\[(?P<NAME>\w+)\]|(?P<ONE>.))")
_SINGLE = {"-": "-", "e": "\\", " ": " ", "~": " ", "0": " ", "'": "'", "`": "`", "\\": "\\", ".": "."}


def read_man(content: bytes) -> Messages:
    """Returns the paragraphs of a page without examples."""
    page = _Page()
    for line in content.decode(errors="replace").splitlines():
        page.read(line)
    page.end_paragraph()
    return number_blocks(page.paragraphs)


class _Page:
    """Collects paragraphs, each with the number of its section."""

    def __init__(self) -> None:
        self.paragraphs: list[tuple[int, str]] = []
        self._section = 0
        self._words: list[str] = []
        self._filled = True

    def read(self, line: str) -> None:
        """Reads a line: a macro with its arguments, or text."""
        macro, _, rest = line.partition(" ")
        if macro in _HEADINGS:
            self.end_paragraph()
            self._section += 1
            self._words.append(_plain(rest).strip('"'))
        if macro in _NO_FILL or macro in _FILL or macro in _BREAKS or not line.strip():
            self.end_paragraph()
            self._filled = macro in _FILL or (self._filled and macro not in _NO_FILL)
        elif self._filled and macro in _FONTS:
            self._words.append(_FONTS[macro].join(map(_plain, _arguments(rest))))
        elif self._filled and not line.startswith((".", "'")):
            self._words.append(_plain(line))

    def end_paragraph(self) -> None:
        """Ends the current paragraph."""
        if text := " ".join(" ".join(self._words).split()):
            self.paragraphs.append((self._section, text))
        self._words.clear()


def _arguments(text: str) -> list[str]:
    """Splits the arguments of a macro, some of them in quotes."""
    return [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"?|(\S+)', text)]


def _plain(text: str) -> str:
    """Returns a text without escapes for fonts and sizes, and without a comment."""
    return _ESCAPE.sub(_character, re.sub(r'\\["#].*', "", text))


def _character(found: re.Match[str]) -> str:
    name = found["TWO"] or found["NAME"]
    return _CHARACTERS.get(name, "") if name else _SINGLE.get(found["ONE"] or "", "")
