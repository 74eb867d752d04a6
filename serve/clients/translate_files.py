"""Files of `dragoman translate`: reads documents and writes them translated, with progress bars."""

import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from tqdm import tqdm

from dragoman.model.errors import describe_os_error
from dragoman.serve.clients.file_plan import DocumentFileError, Files
from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest, Segment
from dragoman.serve.documents.translation import DistinctSegments, TranslateParts, translate_segments
from dragoman.serve.glossaries.files import read_file
from dragoman.serve.host.files import FileError
from dragoman.serve.local.errors import TranslationError, is_of_one_text
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.translation.divided import translate_divided


def read_document(file: Path, request: DocumentRequest) -> Document:
    """Reads a file; raises DocumentFileError if it cannot be read."""
    from dragoman.serve.documents.formats import parse_document  # noqa: PLC0415 - keeps --help quick

    with _named_errors(file):
        return parse_document(file.name, file.read_bytes(), request)


def read_terms(file: Path, source_language: str, target_language: str) -> tuple[Entry, ...]:
    """Reads a file of terms; the languages are needed for TBX. Raises FileError if it cannot be read."""
    try:
        return read_file(file, source_language, target_language)
    except FileError as error:
        raise FileError(f"--terms: {error}") from error


async def translate_files(files: Files, translate: Callable[[Path, Path], Awaitable[None]], *, overwrite: bool) -> None:
    """Translates each file to its path, one after the other; continues after a file that fails.

    Standard error gets a line for each file, and the counts if there are several.

    Args:
        translate: translates a file to a path, or raises DocumentFileError.
        overwrite: whether existing translations are replaced; else they are kept.

    Raises:
        DocumentFileError: at the end if a file failed; at once for a reason that concerns all files.
    """
    for file in files.unknown:
        _note(f"{file}: skipped, unknown format")
    counts = {"translated": 0, "kept": 0, "skipped": len(files.unknown), "failed": 0}
    several = sum(map(len, files)) > 1
    for file, out in tqdm(files.outputs.items(), unit=" files", disable=None if several else True):
        if not overwrite and os.path.lexists(out):  # noqa: ASYNC240 - of one path
            _note(f"{file}: kept {out}, which --overwrite replaces")
            counts["kept"] += 1
            continue
        try:
            await translate(file, out)
            counts["translated"] += 1
        except DocumentFileError as error:
            # Without a server, for example, the next file would fail too.
            is_of_all = isinstance(error.__cause__, TranslationError) and not is_of_one_text(error.__cause__)
            if not several or is_of_all:
                raise
            _note(f"dragoman translate: {error}")
            counts["failed"] += 1
    summary = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    if counts["failed"]:
        raise DocumentFileError(summary)
    if several:
        _note(summary)


def _note(text: str) -> None:
    tqdm.write(text, file=sys.stderr)


async def translate_document(
    file: Path, document: Document, out: Path, translate: TranslateParts, in_flight: int
) -> None:
    """Translates the document of a file; raises DocumentFileError if it cannot be translated or written."""

    async def translate_parts(parts: Sequence[Segment]) -> list[str]:
        return [translation async for translation in translate_divided(translate, parts, is_of_one_text)]

    with _named_errors(file):
        distinct = DistinctSegments(document)
        # Next to the bar of files, that of a file goes with it.
        with tqdm(desc=file.name, total=distinct.parts, unit=" parts", disable=None, leave=None) as bar:
            translations = await translate_segments(distinct.segments, translate_parts, in_flight, bar.update)
        _write(out, distinct.write(translations))
        _note(", ".join((f"{file}: translated to {out}", *getattr(document, "notes", ()))))


@contextmanager
def _named_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except (DocumentError, TranslationError) as error:
        raise DocumentFileError(f"{file}: {error}") from error
    except OSError as error:
        error.filename = error.filename or file
        raise DocumentFileError(describe_os_error(error)) from error


def _write(path: Path, content: bytes) -> None:
    """Writes a file atomically: no reader finds it incomplete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(content)
            file.close()
            Path(file.name).chmod(0o666 & ~_umask())
            Path(file.name).replace(path)
        except BaseException:
            with suppress(FileNotFoundError):
                Path(file.name).unlink()
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
