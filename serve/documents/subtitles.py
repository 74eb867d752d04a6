"""Subtitles: SubRip and WebVTT. Times, settings and tags stay; sentences that run over cues are one segment.

The translation of such a segment goes back to its cues in proportion to their texts, and is wrapped again. Marks of
speakers and of music stay, and so do names and sounds in capitals, such as `JOHN:` and `[MUSIC]`. Other sounds, such as
`(laughs)`, are segments of their own if they begin a cue. Every expression takes linear time: its repetitions are
possessive.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from dragoman.serve.documents.document import Document, DocumentRequest
from dragoman.serve.documents.inline import Inline, Item, ItemKind
from dragoman.serve.documents.splice import Part, Span, SplicedDocument, decode
from dragoman.serve.protect.markup.references import decode_references

# The usual longest line, and the longest pause inside of a sentence.
LINE_CHARACTERS = 42
PAUSE_SECONDS = 1.5
# Cues of one segment.
MAX_CUES = 5
_LINE_END = r"(?:\r\n|\r|\n)"
_MOMENT = r"[\d:]++[,.]\d++"
_TIME = rf"[ \t]*+{_MOMENT}[ \t]++-->"
# Empty lines end a cue. Lines of blanks do so only before the number or the time of the next one.
_CUE = re.compile(
    rf"^[ \t]*+(?P<START>{_MOMENT})[ \t]++-->[ \t]++(?P<END>{_MOMENT})[^\r\n]*+"
    rf"{_LINE_END}(?P<TEXT>(?:(?:[ \t]++{_LINE_END})*+(?!(?:[ \t]*+\d++[ \t]*+{_LINE_END})?+{_TIME})"
    rf"[^\r\n]++(?:{_LINE_END}|\Z))++)",
    re.MULTILINE,
)
_TAG_FORM = r"<(?P<SLASH>/?)(?P<NAME>[A-Za-z]++)[^<>]*+>|\{\\[^{}]*+\}|<[\d:.]++>"
_TAG = re.compile(_TAG_FORM)
_WORD = re.compile(rf"(?:{_TAG_FORM}|\S)++")
_SOUND_FORM = r"(?:\[[^\[\]\r\n<>]{2,100}\]|\([^()\r\n<>]{2,100}\))"
# Tags, notes, and what may be a sound.
_MARK = re.compile(rf"{_TAG_FORM}|[♩♪♫♬]++|(?P<SOUND>{_SOUND_FORM})")
_FIRST_SOUND = re.compile(rf"(?:{_TAG_FORM}|[-\u2013\u2014♪>\s]++)*+(?P<SOUND>{_SOUND_FORM})(?=\s|<|\Z)")
_SENTENCE_END = re.compile(r"[.!?…:;♪)\]\"'”»]$")
# `JOHN:`, `MAN 2:`
_NAME = r"[A-Z\u00c0-\u00de\u0400-\u042f][A-Z\u00c0-\u00de\u0400-\u042f0-9 .'#&-]{0,40}:(?=\s|<|\Z)"
_SPEAKER_MARK = re.compile(rf"(?:(?:[-\u2013\u2014]|>>++)[ \t]*+)?+{_NAME}[ \t]*+|(?:[-\u2013\u2014]|>>++)[ \t]*+")
_LINE_ENDS = re.compile(r"[\r\n]+")
_SPEAKER_FORM = rf"(?:<v[ .]|(?:</?[A-Za-z][^<>\n]*+>|\{{\\[^{{}}\n]*+\}})*+(?:[-\u2013\u2014♪]|>>|{_NAME}))"
_SPEAKER = re.compile(_SPEAKER_FORM)
# What stands between texts of different speakers.
_APART = re.compile(r"[-\u2013\u2014♩♪♫♬\[\]():]|>>")
_SPEECH = re.compile(rf"(?<=\n)(?={_SPEAKER_FORM})")


@dataclass(frozen=True, slots=True)
class _Cue:
    """A cue: its times in seconds, its characters in the document, and its text."""

    start: float
    end: float
    span: Span
    inline: Inline

    @property
    def text(self) -> str:
        return "".join(item.raw for item in self.inline.items if item.kind is ItemKind.TEXT)


def parse_subtitles(content: bytes, request: DocumentRequest, *, vtt: bool) -> Document:
    """Parses subtitles, of WebVTT or of SubRip."""
    text, encode = decode(content)
    line_end = "\r\n" if "\r\n" in text else "\n"
    parts = (_part(group, line_end, vtt=vtt) for group in _groups(_cues(text, vtt=vtt)))
    return SplicedDocument(text, parts, encode, request)


def _cues(text: str, *, vtt: bool) -> Iterator[_Cue]:
    """Yields the cues with text; lines of several speakers stay apart."""
    for match in _CUE.finditer(text):
        start, end = _seconds(match["START"]), _seconds(match["END"])
        offset = match.start("TEXT")
        for raw in _speeches(match["TEXT"].rstrip("\r\n")):
            inline = Inline.of(list(_items(raw, vtt=vtt)))
            if inline.is_translatable:
                yield _Cue(start, end, (offset, offset + len(raw)), inline)
            offset += len(raw)


def _speeches(text: str) -> Iterator[str]:
    """Yields the text cut before each line that begins with the mark of a speaker, and after a sound that begins it."""
    for speech in _SPEECH.split(text) if _SPEAKER.match(text) else (text,):
        sound = _FIRST_SOUND.match(speech)
        offset = sound.end() if sound and not sound["SOUND"].isupper() else 0
        yield from filter(None, (speech[:offset], speech[offset:]))


def _items(raw: str, *, vtt: bool) -> Iterator[Item]:
    sound = _FIRST_SOUND.fullmatch(raw)
    position = 0
    for mark in _MARK.finditer(raw):
        if mark["SOUND"] and not mark["SOUND"].isupper() and not (sound and sound.span("SOUND") == mark.span()):
            continue
        yield from _text_items(raw[position : mark.start()], vtt=vtt)
        position = mark.end()
        if mark["NAME"]:
            yield Item(ItemKind.CLOSE if mark["SLASH"] else ItemKind.OPEN, mark[0], mark["NAME"].lower())
        elif mark["SOUND"] and not mark["SOUND"].isupper():
            yield Item(ItemKind.POINT, mark[0][0])
            yield from _text_items(mark[0][1:-1], vtt=vtt)
            yield Item(ItemKind.POINT, mark[0][-1])
        else:
            yield Item(ItemKind.POINT, mark[0])
    yield from _text_items(raw[position:], vtt=vtt)


def _text_items(raw: str, *, vtt: bool) -> Iterator[Item]:
    if not raw:
        return
    if speaker := _SPEAKER_MARK.match(raw):
        yield Item(ItemKind.POINT, speaker[0])
        raw = raw[speaker.end() :]
    bare = raw.rstrip()
    joined = _join_lines(bare)
    yield Item(ItemKind.TEXT, decode_references(joined) if vtt else joined)
    yield Item(ItemKind.TEXT, raw[len(bare) :])


def _join_lines(text: str) -> str:
    """Returns a text in one line, without the blanks around its line ends."""
    first, *others = _LINE_ENDS.split(text)
    if not others:
        return text
    *inner, last = others
    return " ".join((first.rstrip(" \t"), *(line.strip(" \t") for line in inner), last.lstrip(" \t")))


def _seconds(time: str) -> float:
    seconds = 0.0
    for part in time.replace(",", ".").split(":"):
        seconds = 60 * seconds + float(part or 0)
    return seconds


def _groups(cues: Iterator[_Cue]) -> Iterator[list[_Cue]]:
    """Yields cues that share a sentence. Only cues without tags inside share one."""
    group = list[_Cue]()
    for cue in cues:
        if group and not (len(group) < MAX_CUES and _continues(group[-1], cue)):
            yield group
            group = []
        group.append(cue)
    if group:
        yield group


def _continues(before: _Cue, cue: _Cue) -> bool:
    return (
        before.inline.is_plain
        and cue.inline.is_plain
        and 0 <= cue.start - before.end <= PAUSE_SECONDS
        and not _SENTENCE_END.search(before.text.rstrip())
        and not _APART.search(before.inline.after + cue.inline.before)
    )


def _part(group: Sequence[_Cue], line_end: str, *, vtt: bool) -> Part:
    spans = [cue.span for cue in group]
    if len(group) == 1:
        inline = group[0].inline

        def render_one(translation: str) -> tuple[str]:
            raw = inline.render(translation, lambda text: escape(text, quote=False) if vtt else text)
            return (_wrap(raw, line_end),)

        return Part(inline.segment, spans, render_one)
    segment = Inline("", (Item(ItemKind.TEXT, " ".join(cue.text for cue in group)),), "").segment

    def render(translation: str) -> list[str]:
        texts = divide(translation, [len(cue.text) for cue in group])
        return [
            _wrap(cue.inline.before + (escape(text, quote=False) if vtt else text) + cue.inline.after, line_end)
            for cue, text in zip(group, texts, strict=True)
        ]

    return Part(segment, spans, render)


def divide(text: str, weights: Sequence[int]) -> list[str]:
    """Divides a text between words in proportion to weights; each part has a word if there are enough of them."""
    words = text.split()
    if len(words) < len(weights):
        words = list(text)
    joint = " " if " " in text else ""
    lengths = list(accumulate(len(word) + len(joint) for word in words))
    parts, first, done = list[str](), 0, 0
    for number, weight in enumerate(weights[:-1]):
        done += weight
        goal = len(text) * done / sum(weights)
        latest = len(words) - (len(weights) - 1 - number)
        ends = range(first + 1, max(first + 2, latest + 1))
        end = min(ends, key=lambda end: abs(lengths[end - 1] - len(joint) - goal))
        parts.append(joint.join(words[first:end]))
        first = end
    return [*parts, joint.join(words[first:])]


def _wrap(raw: str, line_end: str) -> str:
    """Wraps a text into lines of about equal length, not inside of tags; white space around it stays."""
    bare = raw.strip()
    length = _shown(bare)
    if length <= LINE_CHARACTERS:
        return raw
    start = raw.index(bare)
    lines = -(-length // LINE_CHARACTERS)
    width = max(length // lines + LINE_CHARACTERS // 4, LINE_CHARACTERS // 2)
    wrapped, room = list[str](), 0
    for word in _WORD.finditer(bare):
        needed = 1 + _shown(word[0])
        if needed <= room:
            wrapped += (" ", word[0])
            room -= needed
        else:
            wrapped += (line_end, word[0])
            room = width + 1 - needed
    return raw[:start] + "".join(wrapped[1:]) + raw[start + len(bare) :]


def _shown(raw: str) -> int:
    """Returns the number of characters without tags."""
    return len(_TAG.sub("", raw))
