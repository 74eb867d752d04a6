"""XLIFF 1.2, 2.0 and 2.1: translates units without a translation, or all on request, and sets their states.

Inline codes are tags of the segment: pairs go around their text, all others stay between the words where they were.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest
from dragoman.serve.documents.inline import Inline, Item, ItemKind
from dragoman.serve.documents.splice import Part, Span, SplicedDocument
from dragoman.serve.documents.xml import XmlText, decode_xml, escape, local, with_attribute
from dragoman.serve.protect.markup.tokens import Kind, names

# Pairs of tags, pairs of elements, and elements without text of the document. Content of `bpt` and others is code.
_PAIRS = names("g pc mrk")
_STARTS, _ENDS = names("bpt bx sc"), names("ept ex ec")
_UNTRANSLATED_STATES = ("initial", "new", "needs-translation")
_TRANSLATED = "translated"


def parse_xliff(content: bytes, request: DocumentRequest) -> Document:
    """Parses an XLIFF file."""
    text, encode = decode_xml(content)
    document = XmlText(text)
    if local(document.tokens[document.root].name) != "xliff":
        raise DocumentError("not XLIFF: expected the element xliff")
    reader = _UnitReader(document, request)
    return SplicedDocument(text, reader.parts(), encode, request)


@dataclass(slots=True)
class _Unit:
    """A unit of version 1, or a segment of version 2: indices of its start tags; None: it has no such element."""

    start: int
    source: int | None = None
    segmented: int | None = None
    target: int | None = None


class _UnitReader:
    def __init__(self, document: XmlText, request: DocumentRequest) -> None:
        self._document = document
        self._request = request
        version = document.attributes(document.root).get("version", "")
        if not version.startswith(("1.", "2.")):
            raise DocumentError(f"XLIFF {version}, expected 1.2 or 2.x")
        self._unit_name = "trans-unit" if version.startswith("1.") else "segment"
        # Which attribute of which element names the target language, and which element has the state.
        self._language, self._holder = ("target-language", "file") if version[0] == "1" else ("trgLang", "xliff")
        self._state_of_target = version[0] == "1"
        self._language_edit: tuple[Span, str] | None = None

    def parts(self) -> Iterator[Part]:
        """Yields the parts of the units that are to be translated."""
        kept = list[int]()  # ends of elements that are not translated
        for index, token in enumerate(self._document.tokens):
            if token.kind is not Kind.START:
                continue
            while kept and kept[-1] < index:
                kept.pop()
            attributes = self._document.attributes(index)
            if local(token.name) == self._holder:
                self._language_edit = self._edit_language(index, attributes.get(self._language, ""))
            if attributes.get("translate") == "no" and local(token.name) not in ("mrk", "source", "target"):
                kept.append(self._document.ends[index])
            if local(token.name) == self._unit_name and not kept:
                unit = self._unit(index)
                if unit.source is not None and self._is_wanted(unit):
                    yield from self._unit_parts(unit, unit.source)

    def _unit(self, start: int) -> _Unit:
        unit, index = _Unit(start), start + 1
        while index < self._document.ends[start]:
            token = self._document.tokens[index]
            match local(token.name) if token.kind in (Kind.START, Kind.EMPTY) else "":
                case "source" if token.kind is Kind.START:
                    unit.source = index
                case "seg-source" if token.kind is Kind.START:
                    unit.segmented = index
                case "target":
                    unit.target = index
            index = self._document.ends[index] + 1
        return unit

    def _is_wanted(self, unit: _Unit) -> bool:
        attributes = self._document.attributes(unit.start)
        if self._request.retranslate or unit.target is None:
            return True
        target = self._document.attributes(unit.target)
        return attributes.get("approved") != "yes" and (
            self._is_empty(unit.target) or target.get("state", attributes.get("state", "")) in _UNTRANSLATED_STATES
        )

    def _is_empty(self, target: int) -> bool:
        """Returns whether a target has nothing but marks of segments without text."""
        inside = range(target + 1, self._document.ends[target])
        return all(
            local(self._document.tokens[index].name) == "mrk" or self._document.raw(index, index).isspace()
            for index in inside
        )

    def _edit_language(self, index: int, language: str) -> tuple[Span, str] | None:
        if not self._request.needs_target(language):
            return None
        token, tag = self._document.tokens[index], self._document.raw(index, index)
        return (token.start, token.end), with_attribute(tag, self._language, self._request.target)

    def _unit_parts(self, unit: _Unit, source: int) -> Iterator[Part]:
        """Yields the parts of a unit: together they write its target."""
        container = source if unit.segmented is None else unit.segmented
        texts = [(found, inline) for found in self._ranges(container) if (inline := self._inline(*found)) is not None]
        if not texts:
            return
        target, opening, closing = self._target(unit, source, container)
        edits = [] if self._language_edit is None else [self._language_edit]
        self._language_edit = None
        if not self._state_of_target:
            tag = with_attribute(self._document.raw(unit.start, unit.start), "state", _TRANSLATED)
            token = self._document.tokens[unit.start]
            edits.append(((token.start, token.end), tag))
        first = container + 1
        for number, ((start, end), inline) in enumerate(texts):
            before = opening + self._between(first, start)
            is_last = number == len(texts) - 1
            after = self._between(end, self._document.ends[container]) + closing if is_last else ""
            yield _part(inline, before, after, target, edits)
            target, edits, opening, first = (target[1], target[1]), [], "", end

    def _between(self, first: int, end: int) -> str:
        """Returns the document from one token to before another one."""
        return self._document.raw(first, end - 1) if first < end else ""

    def _ranges(self, container: int) -> Iterator[tuple[int, int]]:
        """Yields the first token of each text in a source, and the one after its last."""
        document, end = self._document, self._document.ends[container]
        index, found = container + 1, False
        while index < end:
            token = document.tokens[index]
            if (
                token.kind is Kind.START
                and local(token.name) == "mrk"
                and document.attributes(index).get("mtype") == "seg"
            ):
                found = True
                yield index + 1, document.ends[index]
            index = document.ends[index] + 1
        if not found:
            yield container + 1, end

    def _target(self, unit: _Unit, source: int, container: int) -> tuple[Span, str, str]:
        """Returns where the target goes, and its tags."""
        document = self._document
        name = document.tokens[source].name.replace("source", "target")
        state = f' state="{_TRANSLATED}"' if self._state_of_target else ""
        if unit.target is not None:
            tag = document.raw(unit.target, unit.target).rstrip("/>").rstrip() + ">"
            tag = with_attribute(tag, "state", _TRANSLATED) if self._state_of_target else tag
            target = document.tokens[unit.target].start, document.tokens[document.ends[unit.target]].end
            return target, tag, f"</{name}>"
        before = document.text[document.tokens[source - 1].start : document.tokens[source].start]
        end = document.tokens[document.ends[container]].end
        return (end, end), f"{before if before.isspace() else ''}<{name}{state}>", f"</{name}>"

    def _inline(self, first: int, end: int) -> Inline | None:
        """Returns the text between two tokens; None: it has no letter."""
        items, index = list[Item](), first
        while index < end:
            item, last = self._item(index)
            items.append(item)
            index = last + 1
        inline = Inline.of(items)
        return inline if inline.is_translatable else None

    def _item(self, index: int) -> tuple[Item, int]:
        """Returns the item that begins at a token, and its last token."""
        document = self._document
        token, last = document.tokens[index], document.ends[index]
        name, raw = local(token.name), document.raw(index, last)
        if token.kind is Kind.TEXT or raw.startswith("<![CDATA["):
            return Item(ItemKind.TEXT, document.plain(index, index)), last
        if token.kind is Kind.END:
            return Item(ItemKind.CLOSE, raw, name), last
        attributes = document.attributes(index)
        if name in _PAIRS and token.kind is Kind.START:
            if attributes.get("translate") == "no" or attributes.get("mtype") == "protected":
                return Item(ItemKind.KEPT, raw, document.plain(index, last)), last
            return Item(ItemKind.OPEN, document.raw(index, index), name), index
        if name in _STARTS | _ENDS:
            key = next((attributes[text] for text in ("startRef", "rid", "id") if text in attributes), "")
            return Item(ItemKind.OPEN if name in _STARTS else ItemKind.CLOSE, raw, f"code {key}"), last
        return Item(ItemKind.POINT, raw), last


def _part(inline: Inline, before: str, after: str, target: Span, edits: list[tuple[Span, str]]) -> Part:
    spans, texts = [span for span, _ in edits], [text for _, text in edits]

    def render(translation: str) -> list[str]:
        return [*texts, f"{before}{inline.render(translation, escape)}{after}"]

    return Part(inline.segment, [*spans, target], render, replaces=False)
