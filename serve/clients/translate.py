"""`dragoman translate`: translates files, or standard input to standard output line by line or as one document.

The output has one line per input line, in the same order, for comparison with a reference. A bounded window of lines is
in flight, however long the input. The event loop reads the input: a thread blocked in a read could not be stopped.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast

from pydantic import ConfigDict, Field
from pydantic_settings import CliPositionalArg, SettingsConfigDict
from tqdm import tqdm

from dragoman.serve.bundle.bundle import BundleError
from dragoman.serve.clients.aio import AsyncTranslationClient
from dragoman.serve.clients.errors import NotTranslatedError
from dragoman.serve.clients.local import LocalTranslator
from dragoman.serve.clients.messages import Wanted
from dragoman.serve.clients.options import ConnectionOptions, check_address
from dragoman.serve.clients.translate_files import (
    DocumentFileError,
    output_paths,
    read_document,
    read_terms,
    translate_document,
)
from dragoman.serve.documents.document import DocumentRequest, Segment
from dragoman.serve.documents.inline import IGNORE_TAGS, NON_SPLITTING_TAGS, SPLITTING_TAGS
from dragoman.serve.documents.kept import kept_placeholders
from dragoman.serve.host.files import FileError
from dragoman.serve.languages.names import language_tag
from dragoman.serve.translation.blank import is_blank
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.response import Translation, TranslationDelta, TranslationResponse

MAX_LINE_BYTES = 1 << 20
# gRPC takes a deadline of years as passed.
MAX_TIMEOUT_SECONDS = 86_400.0
_CHUNK_BYTES = 1 << 16

T = TypeVar("T")
R = TypeVar("R")


class LineError(Exception):
    """An invalid or untranslated line; the message starts with its number, except for a document."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(f"line {number}: {problem}" if number else problem)


class Line(NamedTuple):
    """A line without its line feed, or a document. A blank one has no text.

    Attributes:
        number: from 1; 0 for a document.
        end: what follows its translation.
    """

    number: int
    text: str
    end: str = "\n"


async def read_lines(descriptor: int) -> AsyncGenerator[Line]:
    """Yields the lines of a pipe, terminal or file; the last one may lack its line feed.

    Raises:
        LineError: if a line is longer than MAX_LINE_BYTES or not UTF-8.
        OSError: if reading fails.
    """
    number = 1
    rest = b""
    while chunk := await _read(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        for content in lines:
            yield _decode(number, content)
            number += 1
        if len(rest) > MAX_LINE_BYTES:
            raise LineError(number, f"longer than {MAX_LINE_BYTES} bytes")
    if rest:
        yield _decode(number, rest)


async def read_whole(descriptor: int) -> AsyncGenerator[Line]:
    """Yields the whole content of a pipe, terminal or file.

    Raises:
        LineError: if it is longer than MAX_LINE_BYTES or not UTF-8.
        OSError: if reading fails.
    """
    content = b""
    while chunk := await _read(descriptor):
        content += chunk
        if len(content) > MAX_LINE_BYTES:
            raise LineError(0, f"a document longer than {MAX_LINE_BYTES} bytes")
    document = _decode(0, content)
    # Nothing is added to a document; a blank one stays as it is.
    yield document._replace(end="" if document.text else content.decode())


def _decode(number: int, content: bytes) -> Line:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise LineError(number, f"byte 0x{byte:02x} at offset {error.start}, expected UTF-8") from error
    return Line(number, "" if is_blank(text) else text)


async def _read(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        # A regular file is always readable, so epoll refuses to watch it.
        return os.read(descriptor, _CHUNK_BYTES)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _CHUNK_BYTES)


async def map_in_order(
    function: Callable[[T], Coroutine[Any, Any, R]], inputs: AsyncIterator[T], in_flight: int
) -> AsyncGenerator[R]:
    """Yields `function(input)` in the order of the inputs, with up to `in_flight` started and not yet yielded.

    The first failure of a call or of the inputs is raised after all earlier results. To stop early, close the generator
    (`contextlib.aclosing`), which cancels running calls.
    """
    window = asyncio.Semaphore(in_flight)
    begun: asyncio.Queue[asyncio.Task[R] | None] = asyncio.Queue()
    untaken: set[asyncio.Task[Any]] = set()

    async def begin_all() -> None:
        try:
            await window.acquire()
            async for value in inputs:
                task = asyncio.create_task(function(value))
                untaken.add(task)
                begun.put_nowait(task)
                await window.acquire()
        finally:
            begun.put_nowait(None)

    feeder = asyncio.create_task(begin_all())
    try:
        while (task := await begun.get()) is not None:
            result = await task
            untaken.remove(task)
            yield result
            window.release()
        await feeder
    finally:
        for task in (feeder, *untaken):
            task.cancel()
        await asyncio.gather(feeder, *untaken, return_exceptions=True)


STANDARD_INPUT = 0
INTERRUPTED = 130


class SearchFlags(SearchFields):
    """The search options as command-line flags, parsed from strings."""

    model_config = ConfigDict(strict=False)


# Flags without the prefix "options.".
FLAGS = {f"options.{name}": name for name in (field.replace("_", "-") for field in SearchFlags.model_fields)}


class TranslateCommand(ConnectionOptions):
    """Translate files, or standard input line by line or as one document.

    A translated file goes into the folder --out, or next to its source with the target language in its name.

    From standard input, writes one translation per line, in input order; blank lines stay blank. With --alignments, a
    tab and the links follow, such as 0:3-0:5: characters of the line and of its translation. Stops with exit status 1
    at the first line or file that cannot be translated and names it.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_TRANSLATE_", env_nested_delimiter="__", frozen=True, extra="forbid", cli_shortcuts=FLAGS
    )

    HELP_GROUPS: ClassVar[dict[str, str]] = {
        "server": "server or bundle",
        "model": "translation",
        "out": "input",
        "scores": "output",
        "in_flight": "requests",
    }

    files: CliPositionalArg[tuple[Path, ...]] = Field(
        (), description="Documents: txt, md, html, srt, vtt, po, xlf, json, arb, yaml, docx, pptx, odt, odp"
    )
    server: str | None = Field(None, description="Address of a running server's gRPC interface.")
    bundle: Path | None = Field(None, description="Folder of one or several bundles, to translate without a server.")
    model: str = Field("", description="Name of the model. Default: the first one with the direction.")
    source_language: str = Field(
        "", description="ISO 639-1 code of the source language, or auto; default: the only one, or auto."
    )
    target_language: str = Field("", description="ISO 639-1 code of the target language, if ambiguous.")
    allow_pivot: bool = Field(False, description="Translate through a third language if no model has the direction.")
    split_sentences: bool = Field(
        True, description="Translate a line sentence by sentence. If off, each line is one sentence."
    )
    out: Path | None = Field(None, description="Folder for translated files.")
    retranslate: bool = Field(False, description="Translate again what PO and XLIFF files have translated.")
    document: bool = Field(False, description="Translate the whole input as one text instead of line by line.")
    format: Literal["text", "html", "xml"] = Field("text", description="Format of each line or of the document.")
    ignore_tags: tuple[str, ...] = Field((), description="Tags whose content is not translated, in HTML and XML.")
    splitting_tags: tuple[str, ...] = Field((), description="Tags that end a sentence, in HTML and XML.")
    non_splitting_tags: tuple[str, ...] = Field((), description="Tags that end no sentence, in HTML and XML.")
    placeholders: tuple[str, ...] = Field((), description="Kinds of placeholders that translations must have, or all.")
    preserve_formatting: bool = Field(False, description="Letter case, final punctuation and emoji follow the text.")
    terms: Path | None = Field(None, description="File of terms and their translations: tsv, csv or tbx.")
    glossary: tuple[str, ...] = Field((), description="Ids of glossaries that the server stores.")
    options: SearchFlags = Field(SearchFlags(), description="Beam search, sampling, lengths and extra output.")
    scores: bool = Field(False, description="Write the score and a tab before each translation.")
    stream: bool = Field(
        False, description="Write each translation as it grows, one line at a time; ignores --in-flight."
    )
    in_flight: int = Field(64, ge=1, description="Maximum number of concurrent lines.")
    timeout_seconds: float = Field(60.0, gt=0, le=MAX_TIMEOUT_SECONDS, description="Timeout of one line.")

    def cli_cmd(self) -> None:
        """Translates until the input ends; a closed output or Ctrl-C ends the command without a message."""
        if (self.server is None) == (self.bundle is None):
            given = "neither" if self.server is None else "both"
            raise SystemExit(f"dragoman translate: --server, --bundle: expected exactly one of them, got {given}")
        if self.stream and self.scores:
            problem = "expected at most one of them: a score precedes its translation but is known after it"
            raise SystemExit(f"dragoman translate: --stream, --scores: {problem}")
        if self.files and self.out is None and not self.target_language:
            raise SystemExit("dragoman translate: --out, --target-language: expected one of them with files")
        try:
            asyncio.run(self._translate_files() if self.files else self._translate())
        except (LineError, DocumentFileError) as error:
            raise SystemExit(f"dragoman translate: {error}") from error
        except BrokenPipeError:
            _abandon_output()
        except KeyboardInterrupt:
            _abandon_output()
            raise SystemExit(INTERRUPTED) from None
        except (BundleError, FileError) as error:
            raise SystemExit(f"dragoman translate: {error}") from error

    async def _translate(self) -> None:
        async with self._open_translator(markup=self.format != "text") as translator:
            # On a terminal, the translations themselves show the progress.
            with tqdm(unit=" lines", disable=True if sys.stdout.isatty() else None) as bar:
                lines = (read_whole if self.document else read_lines)(STANDARD_INPUT)
                async with aclosing(self._output(translator, lines)) as pieces:
                    async for piece in pieces:
                        # `print` would be wrong: the output is UTF-8 in any locale and is flushed at once.
                        sys.stdout.buffer.write(piece.encode())
                        sys.stdout.buffer.flush()
                        bar.update(piece.endswith("\n"))

    async def _translate_files(self) -> None:
        source, target = language_tag(self.source_language), language_tag(self.target_language)
        outputs = output_paths(self.files, self.out, target)
        request = DocumentRequest(source, target, self.retranslate, ignore_tags=self.ignore_tags)
        documents = [read_document(file, request) for file in self.files]
        markup = any(segment.format != "text" for document in documents for segment in document.segments)
        common = self._wanted | {"ignore_tags": ()}
        async with self._open_translator(markup=markup) as translator:

            async def translate(placeholders: tuple[str, ...], segment: Segment) -> str:
                tags = {
                    "ignore_tags": IGNORE_TAGS,
                    "splitting_tags": SPLITTING_TAGS,
                    "non_splitting_tags": NON_SPLITTING_TAGS,
                }
                wanted = (
                    common
                    | {"format": segment.format, "placeholders": placeholders}
                    | (tags if segment.format == "xml" else {})
                )
                (translation,) = (await translator.translate(segment.text, **cast("Wanted", wanted))).translations
                return translation.text

            for file, document, output in zip(self.files, documents, outputs, strict=True):
                kinds = kept_placeholders(file.name, self.placeholders)
                await translate_document(file, document, output, partial(translate, kinds), self.in_flight)

    @property
    def _wanted(self) -> dict[str, Any]:
        terms = () if self.terms is None else read_terms(self.terms, self.source_language, self.target_language)
        return {name: getattr(self, name) for name in Wanted.__annotations__} | {"terms": terms}

    def _open_translator(
        self, *, markup: bool
    ) -> AbstractAsyncContextManager[AsyncTranslationClient | LocalTranslator]:
        if self.bundle is not None:
            needed = markup or bool(self.placeholders) or self.preserve_formatting or self.terms is not None
            # A file of messages keeps its placeholders if the bundle can place them.
            aligned = needed or (None if self.files else False)
            return LocalTranslator.open(
                self.bundle, self.in_flight, self.timeout_seconds, self.options, aligned=aligned
            )
        check_address("server", str(self.server))
        return AsyncTranslationClient.open(str(self.server), self.connection(timeout_seconds=self.timeout_seconds))

    def _output(
        self, translator: AsyncTranslationClient | LocalTranslator, lines: AsyncIterator[Line]
    ) -> AsyncGenerator[str]:
        wanted = cast("Wanted", self._wanted)
        if self.stream:
            return stream_lines(partial(translator.stream, **wanted), lines)

        async def translate(text: str) -> str:
            (translation,) = (await translator.translate(text, **wanted)).translations
            score = f"{translation.score:.4f}\t" if self.scores else ""
            return f"{score}{translation.text}{show_alignments(translation)}"

        return translate_lines(translate, lines, self.in_flight)


def show_alignments(translation: Translation) -> str:
    """Returns a tab and the links of all sentences; without alignments, an empty string."""
    return "" if translation.alignments is None else f"\t{' '.join(filter(None, map(str, translation.alignments)))}"


def translate_lines(
    translate: Callable[[str], Awaitable[str]], lines: AsyncIterator[Line], in_flight: int
) -> AsyncGenerator[str]:
    """Yields the translation of each line with its end, in order. A blank line is not sent and becomes empty.

    Raises:
        LineError: in place of the first line that is not translated.
    """

    async def translate_line(line: Line) -> str:
        with _numbered_errors(line):
            return f"{await translate(line.text)}{line.end}" if line.text else line.end

    return map_in_order(translate_line, lines, in_flight)


async def stream_lines(
    stream: Callable[[str], AsyncGenerator[TranslationDelta | TranslationResponse]], lines: AsyncIterator[Line]
) -> AsyncGenerator[str]:
    """Yields the growth of the output, line by line, each end of a line separately. Blank lines are not sent.

    Raises:
        LineError: after the pieces of the first line that is not translated.
    """
    async for line in lines:
        if line.text:
            with _numbered_errors(line):
                async with aclosing(stream(line.text)) as events:
                    async for event in events:
                        if isinstance(event, TranslationDelta):
                            yield event.text
                        else:
                            yield show_alignments(event.translations[0])
        yield line.end


@contextmanager
def _numbered_errors(line: Line) -> Iterator[None]:
    try:
        yield
    except NotTranslatedError as error:
        raise LineError(line.number, str(error)) from error


def _abandon_output() -> None:
    # Python flushes standard output again at exit, which would fail with a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
