"""The lines of `dragoman translate`: read from a descriptor, translated in chunks, and written in their order.

A chunk has the lines that can be read without waiting, up to a limit, so that a typed line is translated at once. The
number of chunks in flight is bounded. The event loop reads the input, because a thread blocked in a read could not be
stopped.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from dragoman.model.errors import UserError
from dragoman.serve.local.chunks import map_in_order
from dragoman.serve.local.errors import TranslationError, is_of_one_text
from dragoman.serve.translation.divided import divide_window, translate_divided
from dragoman.serve.translation.fields import is_blank
from dragoman.serve.translation.response import Translation, TranslationDelta, TranslationResponse

MAX_LINE_BYTES = 1 << 20
_READ_BYTES = 1 << 16
# The first chunks have this many lines; later ones have more while a full chunk takes less than `_SHORT_SECONDS`.
_FIRST_LINES = 16
_SHORT_SECONDS, _LONG_SECONDS = 0.5, 4.0


class LineError(UserError):
    """An invalid or untranslated line; the message starts with its number, except for a document."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(f"line {number}: {problem}" if number else problem)


class Lines(NamedTuple):
    """Successive lines without their line feeds, or a document. A blank line has no text.

    Attributes:
        number: line number of the first one, from 1; 0 for a document.
        end: characters after each translation.
    """

    number: int
    texts: Sequence[str]
    end: str = "\n"

    def part(self, start: int, end: int) -> "Lines":
        """Returns the lines with indices from `start` to `end`."""
        return self._replace(number=self.number + start, texts=self.texts[start:end])


async def read_lines(descriptor: int) -> AsyncGenerator[Lines]:
    """Yields the lines of a pipe, terminal or file as they arrive; the last one may lack its line feed.

    Raises LineError if a line is longer than MAX_LINE_BYTES or not UTF-8, OSError if reading fails.
    """
    number = 1
    rest = b""
    while content := await _read(descriptor):
        whole, end, rest = (rest + content).rpartition(b"\n")
        if end:
            for lines in _decode(number, whole):
                yield lines
            number += whole.count(b"\n") + 1
        if len(rest) > MAX_LINE_BYTES:
            raise LineError(number, f"longer than {MAX_LINE_BYTES} bytes")
    if rest:
        for lines in _decode(number, rest):
            yield lines


async def read_whole(descriptor: int) -> AsyncGenerator[Lines]:
    """Yields the whole content of a pipe, terminal or file.

    Raises LineError if it is longer than MAX_LINE_BYTES or not UTF-8, OSError if reading fails.
    """
    content = b""
    while more := await _read(descriptor):
        content += more
        if len(content) > MAX_LINE_BYTES:
            raise LineError(0, f"a document longer than {MAX_LINE_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise _invalid(0, content, error.start) from error
    # Nothing is added to a document; a blank one stays as it is.
    yield Lines(0, [""], text) if is_blank(text) else Lines(0, [text], "")


def _decode(number: int, content: bytes) -> Iterator[Lines]:
    """Yields the lines before the first one that is not UTF-8; raises LineError for that one."""
    try:
        texts = content.decode().split("\n")
    except UnicodeDecodeError as error:
        start = content.rfind(b"\n", 0, error.start) + 1
        if start:
            yield from _decode(number, content[: start - 1])
        raise _invalid(number + content.count(b"\n", 0, start), content[start:], error.start - start) from error
    yield Lines(number, ["" if is_blank(text) else text for text in texts])


def _invalid(number: int, content: bytes, offset: int) -> LineError:
    return LineError(number, f"byte 0x{content[offset]:02x} at offset {offset}, expected UTF-8")


async def _read(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        # A regular file is always readable, so epoll refuses to watch it.
        return os.read(descriptor, _READ_BYTES)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _READ_BYTES)


class _ChunkedTranslation:
    """Translates chunks of lines. A slow model gets small ones, whose output does not wait for long."""

    def __init__(self, translate: Callable[[Sequence[str]], Awaitable[Sequence[str]]], max_lines: int) -> None:
        self._translate = translate
        self._max_lines = max_lines
        self._min_lines = self._lines = min(_FIRST_LINES, max_lines)

    async def chunks(self, read: AsyncIterator[Lines]) -> AsyncIterator[Lines]:
        """Yields the lines in chunks of the present size."""
        async for lines in read:
            start = 0
            while start < len(lines.texts):
                end = start + self._lines
                yield lines.part(start, end)
                start = end

    async def translate(self, chunk: Lines) -> tuple[str, LineError | None]:
        """Returns the output for a chunk, up to the first line that is not translated, and the error of that line."""
        started_seconds, full = time.monotonic(), len(chunk.texts) == self._lines
        translations, problem = list[str](), None
        texts = list(filter(None, chunk.texts))
        try:
            async for translation in translate_divided(self._translate, texts, is_of_one_text):
                translations.append(translation)
        except TranslationError as error:
            problem = error
        seconds = time.monotonic() - started_seconds
        if seconds > _LONG_SECONDS:
            self._lines = max(self._min_lines, self._lines // 2)
        elif full and seconds < _SHORT_SECONDS:
            self._lines = min(self._max_lines, self._lines * 2)
        return _output(chunk, translations, problem)


def _output(chunk: Lines, translations: list[str], problem: Exception | None) -> tuple[str, LineError | None]:
    """Joins translations with the blank lines between them, up to the line that has none."""
    output, given = list[str](), iter(translations)
    for number, text in enumerate(chunk.texts, start=chunk.number):
        translation = next(given, None) if text else ""
        if translation is None:
            return "".join(output), LineError(number, str(problem))
        output += (translation, chunk.end)
    return "".join(output), None


async def translate_lines(
    translate: Callable[[Sequence[str]], Awaitable[Sequence[str]]], read: AsyncIterator[Lines], in_flight: int
) -> AsyncGenerator[str]:
    """Yields the translations of lines with their ends, in order. A blank line is not sent and becomes empty.

    Args:
        translate: returns one translation per text.
        in_flight: maximum number of lines that are translated at once.

    Raises:
        LineError: in place of the first line that is not translated.
    """
    chunks, max_lines = divide_window(in_flight)
    chunked = _ChunkedTranslation(translate, max_lines)
    async with aclosing(map_in_order(chunked.translate, chunked.chunks(read), chunks)) as results:
        async for output, problem in results:
            yield output
            if problem is not None:
                raise problem


async def stream_lines(
    stream: Callable[[str], AsyncGenerator[TranslationDelta | TranslationResponse]], read: AsyncIterator[Lines]
) -> AsyncGenerator[str]:
    """Yields the growth of the output, line by line, each end of a line separately. Blank lines are not sent.

    Raises:
        LineError: after the pieces of the first line that is not translated.
    """
    async for lines in read:
        for number, text in enumerate(lines.texts, start=lines.number):
            if text:
                try:
                    async with aclosing(stream(text)) as events:
                        async for event in events:
                            if isinstance(event, TranslationDelta):
                                yield event.text
                            else:
                                yield show_alignments(event.translations[0])
                except TranslationError as error:
                    raise LineError(number, str(error)) from error
            yield lines.end


def show_alignments(translation: Translation) -> str:
    """Returns a tab and the links of all sentences; without alignments, an empty string."""
    return "" if translation.alignments is None else f"\t{' '.join(filter(None, map(str, translation.alignments)))}"
