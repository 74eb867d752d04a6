"""Files of `dragoman translate`: reads documents and writes them translated, with a progress bar."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from tqdm import tqdm

from dragoman.model.errors import describe_os_error
from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest, Segment
from dragoman.serve.documents.translation import DistinctSegments, TranslateParts, translate_segments
from dragoman.serve.glossaries.files import read_file
from dragoman.serve.host.files import FileError
from dragoman.serve.local.errors import TranslationError, is_of_one_text
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.translation.divided import translate_divided


class DocumentFileError(FileError):
    """A file that is not translated; the message has its path."""


def output_paths(files: Sequence[Path], out: Path | None, target_language: str) -> list[Path]:
    """Returns where the translations of files go: into a folder, or next to each file with the language in its name.

    Raises DocumentFileError if two files have the same path, it is that of a source, a path has no name, or the
    language cannot be part of one.
    """
    if out is None and "/" in target_language:
        raise DocumentFileError(f"--target-language: {target_language!r}, expected the code or name of a language")
    if folder := next((file for file in files if not file.name), None):
        raise DocumentFileError(f"{folder}: expected a file")
    paths = [
        file.with_name(f"{file.stem}.{target_language}{file.suffix}") if out is None else out / file.name
        for file in files
    ]
    # Path.resolve fails at links in a circle; reading or writing such a file names it.
    sources, taken = set(map(os.path.realpath, files)), set[str]()
    for file, path in zip(files, paths, strict=True):
        if (resolved := os.path.realpath(path)) in sources | taken:
            raise DocumentFileError(f"{file}: its translation would overwrite {path}")
        taken.add(resolved)
    return paths


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


async def translate_document(
    file: Path, document: Document, out: Path, translate: TranslateParts, in_flight: int
) -> None:
    """Translates the document of a file; raises DocumentFileError if it cannot be translated or written."""

    async def translate_parts(parts: Sequence[Segment]) -> list[str]:
        return [translation async for translation in translate_divided(translate, parts, is_of_one_text)]

    with _named_errors(file):
        distinct = DistinctSegments(document)
        with tqdm(desc=file.name, total=distinct.parts, unit=" parts", disable=None) as bar:
            translations = await translate_segments(distinct.segments, translate_parts, in_flight, bar.update)
        _write(out, distinct.write(translations))
        print(f"{file}: translated to {out}", *getattr(document, "notes", ()), sep=", ", file=sys.stderr)


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
    """Writes a file at once: it is never seen incomplete."""
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
