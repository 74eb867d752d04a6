"""YAML: each text that is a value is a segment; names, comments and styles stay.

In a file of Rails, the only name of the root is the source language. It becomes the target language.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import yaml

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest, is_translatable
from dragoman.serve.documents.splice import Edit, Part, Span, SplicedDocument, decode
from dragoman.serve.documents.tagged import value_part

_TEXT = "tag:yaml.org,2002:str"
MAX_LEVELS = 200
# Around the names of the root: that of the document, and the mapping.
ROOT_LEVELS = 2
# The parser compares each of them with all others, and each tag with all of them.
MAX_DIRECTIVES = 100
_DIRECTIVE = re.compile(r"^%(?:TAG|YAML)\b", re.MULTILINE)
_RESOLVER = yaml.SafeLoader("")
# Texts that are safe without quotes in any place.
_PLAIN = re.compile(
    r"[A-Za-z<\u00c0-\u02af\u0370-\u1fff\u3040-\ud7ff][^:#\[\]{},\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]*(?<! )"
)
# Anchors and tags in front of a scalar, with the comments after them.
_PROPERTIES = re.compile(r"(?:[&!]\S*+[ \t\r\n]++(?:#.*+[ \t\r\n]*+)*+)*+")
# In a folded scalar, the line ends after a line without indent have one more than they mean.
_FOLDED = re.compile(r"^([^ \t\n].*+\n++)(?=[^ \t])", re.MULTILINE)


def parse_yaml(content: bytes, request: DocumentRequest) -> Document:
    """Parses a YAML file."""
    text, encode = decode(content)
    if next(islice(_DIRECTIVE.finditer(text), MAX_DIRECTIVES, None), None) is not None:
        raise DocumentError(f"not YAML that can be read: more than {MAX_DIRECTIVES} directives")
    edits = list[Edit]()
    return SplicedDocument(text, _parts(text, request, edits), encode, request, edits)


def _parts(text: str, request: DocumentRequest, edits: list[Edit]) -> Iterator[Part]:
    """Yields the parts; then adds the edit of the root's name."""
    roots = list[yaml.ScalarEvent]()
    try:
        for event in _values(text.replace("\ufeff", " ", 1), roots):
            part = _part(text, event, request)
            if part is not None:
                yield part
    except (yaml.YAMLError, RecursionError) as error:
        raise DocumentError(f"not YAML: {error}") from error
    if len(roots) == 1 and request.is_of_source(roots[0].value) and request.needs_target(roots[0].value):
        start, end = _span(text, roots[0])
        edits.append(((start, end), _write(text[start:end], request.target)))


@dataclass(slots=True)
class _Level:
    """A collection that is being read; in a mapping, whether a name comes next."""

    mapping: bool
    name_next: bool = True


def _values(text: str, roots: list[yaml.ScalarEvent]) -> Iterator[yaml.ScalarEvent]:
    """Yields the scalars that are values, and adds names of the root to `roots`; events need no recursion."""
    levels = [_Level(mapping=False)]
    for event in yaml.parse(text, yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            levels.pop()
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        level = levels[-1]
        is_name = level.mapping and level.name_next
        level.name_next = not level.name_next
        if isinstance(event, yaml.CollectionStartEvent):
            levels.append(_Level(isinstance(event, yaml.MappingStartEvent)))
            # The parser takes quadratic time for deep levels.
            if len(levels) > MAX_LEVELS:
                raise DocumentError(f"not YAML that can be read: more than {MAX_LEVELS} levels")
        elif isinstance(event, yaml.ScalarEvent) and not is_name:
            yield event
        elif isinstance(event, yaml.ScalarEvent) and len(levels) == ROOT_LEVELS:
            roots.append(event)


def _is_text(event: yaml.ScalarEvent) -> bool:
    if not is_translatable(event.value):
        return False
    if event.tag is not None:
        return event.tag in (_TEXT, "!")
    return _resolves_to_text(event.value, event.implicit)


def _resolves_to_text(value: str, implicit: tuple[bool, bool]) -> bool:
    tag: object = _RESOLVER.resolve(yaml.ScalarNode, value, implicit)  # type: ignore[no-untyped-call]
    return tag == _TEXT


def _part(text: str, event: yaml.ScalarEvent, request: DocumentRequest) -> Part | None:
    if not _is_text(event):
        return None
    start, end = _span(text, event)
    return value_part(event.value, ((start, end),), request.ignore_tags, _render, text[start:end])


def _span(text: str, event: yaml.ScalarEvent) -> Span:
    """Returns the characters of a scalar, without its anchor and tag."""
    if event.start_mark is None or event.end_mark is None:
        raise AssertionError("every event of a text has its places")
    properties = _PROPERTIES.match(text, event.start_mark.index)
    return properties.end() if properties else event.start_mark.index, event.end_mark.index


def _render(before: str, after: str, raw: str, text: str) -> tuple[str]:
    if raw.startswith(("|", ">")):
        return (_write_block(raw, before, text),)
    return (_write(raw, f"{before}{text}{after}"),)


def _write(raw: str, value: str) -> str:
    """Returns a scalar in the style of another one, if it can have this style."""
    if raw.startswith("'") and "\n" not in value:
        return "'{}'".format(value.replace("'", "''"))
    if not raw.startswith('"') and _PLAIN.fullmatch(value) and _resolves_to_text(value, (True, False)):
        return value
    return json.dumps(value, ensure_ascii=False)


def _write_block(raw: str, before: str, translation: str) -> str:
    """Returns a block scalar with another text; its header stays, and so does `before`, its white space."""
    header, _, body = raw.partition("\n")
    head, _, tail = body.partition(body.strip())
    blanks = before.rpartition("\n")[2]
    indent = " " * (len(head.rpartition("\n")[2]) - len(blanks))
    text = f"{blanks}{translation}"
    if header.startswith(">"):
        text = _FOLDED.sub(r"\1\n", text)
    text = re.sub(r"\n(?!\n|\Z)", f"\n{indent}", text)[len(blanks) :]
    if header.endswith("\r"):
        text = text.replace("\n", "\r\n")
    return f"{header}\n{head}{text}{tail}"
