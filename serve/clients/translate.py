"""`dragoman translate`: translates files, or standard input to standard output line by line or as one document.

The output has one line per input line, in the same order, for comparison with a reference.
"""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from pydantic import ConfigDict, Field
from pydantic_settings import CliPositionalArg, SettingsConfigDict
from tqdm import tqdm

from dragoman.model.errors import INTERRUPTED, UsageError
from dragoman.serve.clients.lines import Lines, read_lines, read_whole, show_alignments, stream_lines, translate_lines
from dragoman.serve.clients.options import ConnectionOptions, check_address
from dragoman.serve.languages.names import language_tag
from dragoman.serve.local.options import RequestFields
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.response import Translation
from dragoman.tables import described, read_table

if TYPE_CHECKING:
    from dragoman.serve.clients.aio import AsyncTranslationClient
    from dragoman.serve.documents.document import Segment
    from dragoman.serve.local.translator import LocalTranslator

# gRPC takes a deadline of years as passed.
MAX_TIMEOUT_SECONDS = 86_400.0
# A server has other clients, whose texts need room in its queue too.
SERVER_LINES, BUNDLE_LINES = 64, 1024
GARBAGE_OBJECTS = 100_000
STANDARD_INPUT = 0


class SearchFlags(SearchFields):
    """The search options as command-line flags, parsed from strings."""

    model_config = ConfigDict(strict=False)


class _Wanted(RequestFields, total=False):
    timeout_seconds: float


# Flags without the prefix "options.".
FLAGS = {f"options.{name}": name for name in (field.replace("_", "-") for field in SearchFlags.model_fields)}


@described(__file__)
class TranslateCommand(ConnectionOptions):
    """Translates files and folders, or standard input, with a server or a bundle."""

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_TRANSLATE_", env_nested_delimiter="__", frozen=True, extra="forbid", cli_shortcuts=FLAGS
    )

    HELP_GROUPS: ClassVar[dict[str, str]] = read_table(__file__, "translate.yaml")["groups"]

    files: CliPositionalArg[tuple[Path, ...]] = ()
    server: str | None = None
    bundle: Path | None = None
    model: str = ""
    source_language: str = ""
    target_language: str = ""
    allow_pivot: bool = False
    split_sentences: bool = True
    context: str = ""
    out: Path | None = None
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    name: str = Field("", json_schema_extra={"placeholder": "PATTERN"})
    overwrite: bool = False
    retranslate: bool = False
    columns: tuple[str, ...] = ()
    csv_formulas: Literal["escape", "keep"] = "escape"
    document: bool = False
    format: Literal["text", "html", "xml"] = "text"
    ignore_tags: tuple[str, ...] = ()
    splitting_tags: tuple[str, ...] = ()
    non_splitting_tags: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ()
    preserve_formatting: bool = False
    terms: Path | None = None
    glossary: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    options: SearchFlags = SearchFlags()
    scores: bool = False
    stream: bool = False
    in_flight: int | None = Field(
        None,
        ge=1,
        description=f"Maximum number of concurrent lines; default: {BUNDLE_LINES}, with --server {SERVER_LINES}.",
    )
    timeout_seconds: float = Field(60.0, gt=0, le=MAX_TIMEOUT_SECONDS)

    def cli_cmd(self) -> None:
        """Translates until the input ends; a closed output or Ctrl-C ends the command without a message."""
        if (self.server is None) == (self.bundle is None):
            given = "neither" if self.server is None else "both"
            raise UsageError(f"--server, --bundle: expected exactly one of them, got {given}")
        if self.stream and self.scores:
            problem = "expected at most one of them: a score precedes its translation but is known after it"
            raise UsageError(f"--stream, --scores: {problem}")
        try:
            asyncio.run(self._translate_files() if self.files else self._translate())
        except BrokenPipeError:
            _abandon_output()
        except KeyboardInterrupt:
            _abandon_output()
            raise SystemExit(INTERRUPTED) from None

    async def _translate(self) -> None:
        async with self._open_translator() as translator:
            # On a terminal, the translations themselves show the progress.
            with tqdm(unit=" lines", disable=True if sys.stdout.isatty() else None) as bar:
                lines = (read_whole if self.document else read_lines)(STANDARD_INPUT)
                async with aclosing(self._output(translator, lines)) as pieces:
                    async for piece in pieces:
                        # `print` would be wrong: the output is UTF-8 in any locale and is flushed at once.
                        sys.stdout.buffer.write(piece.encode())
                        sys.stdout.buffer.flush()
                        bar.update(piece.count("\n"))

    async def _translate_files(self) -> None:
        # Lines need no parsers of documents.
        from dragoman.serve.clients.file_plan import FilePlan  # noqa: PLC0415
        from dragoman.serve.clients.translate_files import read_document, translate_document, translate_files  # noqa: PLC0415
        from dragoman.serve.documents.document import DocumentRequest  # noqa: PLC0415
        from dragoman.serve.documents.formats import kept_placeholders  # noqa: PLC0415

        source, target = language_tag(self.source_language), language_tag(self.target_language)
        plan = FilePlan(self.out, self.include, self.exclude, self.name, source, target)
        files = plan.find(self.files)
        request = DocumentRequest(
            source,
            target,
            self.retranslate,
            ignore_tags=self.ignore_tags,
            columns=self.columns,
            csv_formulas=self.csv_formulas,
        )
        wanted = self._wanted
        async with self._open_translator() as translator:

            async def translate(file: Path, output: Path) -> None:
                kinds = kept_placeholders(file.name, self.placeholders)
                parts = partial(_translate_segments, translator, wanted | {"placeholders": kinds})
                await translate_document(file, read_document(file, request), output, parts, self._lines)

            await translate_files(files, translate, overwrite=self.overwrite)

    @property
    def _lines(self) -> int:
        return self.in_flight or (SERVER_LINES if self.bundle is None else BUNDLE_LINES)

    @property
    def _wanted(self) -> dict[str, Any]:
        terms: Sequence[Entry] = ()
        if self.terms is not None:
            from dragoman.serve.clients.translate_files import read_terms  # noqa: PLC0415 - few need a parser of XML

            terms = read_terms(self.terms, self.source_language, self.target_language)
        return {name: getattr(self, name) for name in _Wanted.__annotations__} | {"terms": terms}

    @asynccontextmanager
    async def _open_translator(self) -> "AsyncIterator[AsyncTranslationClient | LocalTranslator]":
        # Modules and models stay, and lines leave no cycles: collections took a twelfth of the time of a line, and the
        # last one a tenth of that of the modules.
        gc.set_threshold(GARBAGE_OBJECTS)
        async with self._open_client() if self.bundle is None else self._open_bundle(self.bundle) as opened:
            gc.freeze()
            yield opened

    def _open_client(self) -> "AbstractAsyncContextManager[AsyncTranslationClient]":
        from dragoman.serve.clients.aio import AsyncTranslationClient  # noqa: PLC0415 - a bundle needs no gRPC

        check_address("server", str(self.server))
        return AsyncTranslationClient.open(str(self.server), self.connection(timeout_seconds=self.timeout_seconds))

    def _open_bundle(self, bundle: Path) -> "AbstractAsyncContextManager[LocalTranslator]":
        from dragoman.serve.local.translator import LocalTranslator  # noqa: PLC0415 - a server has the models
        from dragoman.serve.observability.logs import configure_logs  # noqa: PLC0415

        configure_logs("console")
        markup = self.format != "text"
        needed = markup or bool(self.placeholders) or self.preserve_formatting or self.terms is not None
        # A file has its tags and placeholders placed if the bundle can do so.
        aligned = self.options.attended or needed or (None if self.files else False)
        return LocalTranslator(bundle, alignments=aligned)

    def _output(
        self, translator: "AsyncTranslationClient | LocalTranslator", read: AsyncIterator[Lines]
    ) -> AsyncGenerator[str]:
        wanted = cast("_Wanted", self._wanted)
        if self.stream:
            return stream_lines(partial(translator.stream, **wanted), read)

        async def translate(texts: Sequence[str]) -> list[str]:
            return list(map(self._show, await _translate(translator, texts, wanted)))

        return translate_lines(translate, read, self._lines)

    def _show(self, translation: Translation) -> str:
        score = f"{translation.score:.4f}\t" if self.scores else ""
        return f"{score}{translation.text}{show_alignments(translation)}"


async def _translate(
    translator: "AsyncTranslationClient | LocalTranslator", texts: Sequence[str], wanted: _Wanted
) -> Sequence[Translation]:
    answer = await translator.translate(texts, **wanted)
    return answer if isinstance(answer, list) else answer.translations


async def _translate_segments(
    translator: "AsyncTranslationClient | LocalTranslator", wanted: dict[str, Any], segments: "Sequence[Segment]"
) -> list[str]:
    from dragoman.serve.documents.inline import TAGS  # noqa: PLC0415 - lines need no parsers of documents

    text_format = segments[0].format
    tags = TAGS if text_format == "xml" else {"ignore_tags": ()}
    options = cast("_Wanted", {**wanted, "format": text_format, **tags})
    translations = await _translate(translator, [segment.text for segment in segments], options)
    return [translation.text for translation in translations]


def _abandon_output() -> None:
    # Python flushes standard output again at exit, which would fail with a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
