"""Reads pages of help in HTML. Pages of equal structure are translations of each other, block by block.

An id begins a group of blocks.
"""

import re
from html.parser import HTMLParser

from dragoman.model.data.sources.readers.messages import Messages, number_blocks

# Elements inside of a text, in HTML and in Mallard, the format of GNOME's help.
_INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|del|dfn|em|font|i|img|ins|kbd|label|mark|q|s|samp|small|span|strike|strong"
    "|sub|sup|tt|u|var|app|cmd|email|file|gui|guiseq|input|key|keyseq|link|media|output|sys"
)
_SKIPPED = frozenset(
    {"comment", "head", "info", "script", "style", "pre", "nav", "select", "textarea", "button", "template"}
)
_VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"})
_CHARSET = re.compile(rb"charset=[\"']?([\w-]+)", re.IGNORECASE)


def read_help(content: bytes) -> Messages:
    """Returns the text of each block, without hidden elements for other systems."""
    charset = _CHARSET.search(content[:1000])
    reader = _HelpPage()
    reader.feed(content.decode(charset[1].decode() if charset else "utf-8"))
    reader.close()
    reader.end_block()
    return number_blocks(reader.blocks)


class _HelpPage(HTMLParser):
    """Collects the texts of blocks, each with the id that begins its group."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[tuple[str, str]] = []
        self._anchor = ""
        self._text = ""
        # The names of open elements inside of one that is skipped, and of that one.
        self._skipped: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if self._skipped:
            self._skipped += [] if tag in _VOID else [tag]
        elif tag in _SKIPPED or _is_for_other_systems(attributes):
            self._skipped.append(tag)
        elif not _INLINE.fullmatch(tag):
            self.end_block()
            self._anchor = attributes.get("id") or self._anchor

    def handle_endtag(self, tag: str) -> None:
        if tag in self._skipped:
            while self._skipped.pop() != tag:
                pass
        elif not self._skipped and not _INLINE.fullmatch(tag):
            self.end_block()

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._text += data

    def end_block(self) -> None:
        """Ends the current block."""
        text = " ".join(self._text.replace("\u00b6", "").split())
        if text:
            self.blocks.append((self._anchor, text))
        self._text = ""


def _is_for_other_systems(attributes: dict[str, str | None]) -> bool:
    """Returns whether an element is a variant of a text for one system or module: its class is in capitals."""
    return (attributes.get("class") or "").isupper()
