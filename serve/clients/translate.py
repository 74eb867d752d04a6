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

from dragoman.serve.clients.lines import Lines, read_lines, read_whole, show_alignments, stream_lines, translate_lines
from dragoman.serve.clients.options import ConnectionOptions, check_address
from dragoman.serve.host.tables import described, read_table
from dragoman.serve.languages.names import language_tag
from dragoman.serve.local.options import RequestFields
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.response import Translation

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
INTERRUPTED = 130


class SearchFlags(SearchFields):
    """The search options as command-line flags, parsed from strings."""

    model_config = ConfigDict(strict=False)


class _Wanted(RequestFields, total=False):
    timeout_seconds: float


# Flags without the prefix "options.".
FLAGS = {f"options.{name}": name for name in (field.replace("_", "-") for field in SearchFlags.model_fields)}


@described(__file__)
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

    HELP_GROUPS: ClassVar[dict[str, str]] = read_table(__file__, "translate.yaml")["groups"]

    files: CliPositionalArg[tuple[Path, ...]] = ()
    server: str | None = None
    bundle: Path | None = None
    model: str = ""
    source_language: str = ""
    target_language: str = ""
    allow_pivot: bool = False
    split_sentences: bool = True
    out: Path | None = None
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
            raise SystemExit(f"dragoman translate: --server, --bundle: expected exactly one of them, got {given}")
        if self.stream and self.scores:
            problem = "expected at most one of them: a score precedes its translation but is known after it"
            raise SystemExit(f"dragoman translate: --stream, --scores: {problem}")
        if self.files and self.out is None and not self.target_language:
            raise SystemExit("dragoman translate: --out, --target-language: expected one of them with files")
        try:
            asyncio.run(self._translate_files() if self.files else self._translate())
        except BrokenPipeError:
            _abandon_output()
        except KeyboardInterrupt:
            _abandon_output()
            raise SystemExit(INTERRUPTED) from None

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
                        bar.update(piece.count("\n"))

    async def _translate_files(self) -> None:
        # Lines need no parsers of documents.
        from dragoman.serve.clients.translate_files import output_paths, read_document, translate_document  # noqa: PLC0415
        from dragoman.serve.documents.document import DocumentRequest  # noqa: PLC0415
        from dragoman.serve.documents.formats import kept_placeholders  # noqa: PLC0415
        from dragoman.serve.documents.inline import TAGS  # noqa: PLC0415

        source, target = language_tag(self.source_language), language_tag(self.target_language)
        outputs = output_paths(self.files, self.out, target)
        request = DocumentRequest(
            source,
            target,
            self.retranslate,
            ignore_tags=self.ignore_tags,
            columns=self.columns,
            csv_formulas=self.csv_formulas,
        )
        documents = [read_document(file, request) for file in self.files]
        markup = any(segment.format != "text" for document in documents for segment in document.segments)
        common = self._wanted | {"ignore_tags": ()}
        async with self._open_translator(markup=markup) as translator:

            async def translate(placeholders: tuple[str, ...], segments: "Sequence[Segment]") -> list[str]:
                text_format = segments[0].format
                tags = TAGS if text_format == "xml" else {}
                wanted = {**common, "format": text_format, "placeholders": placeholders, **tags}
                texts = [segment.text for segment in segments]
                translations = await _translate(translator, texts, cast("_Wanted", wanted))
                return [translation.text for translation in translations]

            for file, document, output in zip(self.files, documents, outputs, strict=True):
                kinds = kept_placeholders(file.name, self.placeholders)
                await translate_document(file, document, output, partial(translate, kinds), self._lines)

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
    async def _open_translator(self, *, markup: bool) -> "AsyncIterator[AsyncTranslationClient | LocalTranslator]":
        # Modules and models stay, and lines leave no cycles: collections took a twelfth of the time of a line, and the
        # last one a tenth of that of the modules.
        gc.set_threshold(GARBAGE_OBJECTS)
        async with self._open_client() if self.bundle is None else self._open_bundle(self.bundle, markup) as opened:
            gc.freeze()
            yield opened

    def _open_client(self) -> "AbstractAsyncContextManager[AsyncTranslationClient]":
        from dragoman.serve.clients.aio import AsyncTranslationClient  # noqa: PLC0415 - a bundle needs no gRPC

        check_address("server", str(self.server))
        return AsyncTranslationClient.open(str(self.server), self.connection(timeout_seconds=self.timeout_seconds))

    def _open_bundle(self, bundle: Path, markup: bool) -> "AbstractAsyncContextManager[LocalTranslator]":
        from dragoman.serve.local.translator import LocalTranslator  # noqa: PLC0415 - a server has the models
        from dragoman.serve.observability.logs import configure_logs  # noqa: PLC0415

        configure_logs("console")
        needed = markup or bool(self.placeholders) or self.preserve_formatting or self.terms is not None
        # A file of messages keeps its placeholders if the bundle can place them.
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


def _abandon_output() -> None:
    # Python flushes standard output again at exit, which would fail with a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
