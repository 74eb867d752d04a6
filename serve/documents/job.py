"""Jobs: translations of documents that outlive the request and the process."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, BinaryIO, NamedTuple

from pydantic import Field

from dragoman.serve.documents.document import CsvFormulas
from dragoman.serve.translation.fields import Fields


class JobStatus(StrEnum):
    """States of a job. DONE and FAILED are final."""

    QUEUED = "queued"
    TRANSLATING = "translating"
    DONE = "done"
    FAILED = "failed"


# Columns of a request, and characters of the name of one.
MAX_CHOSEN, MAX_NAME = 256, 1024
_OF_DOCUMENT = ("retranslate", "ignore_tags", "columns", "csv_formulas")


class JobOptions(Fields):
    """How a document is translated; the other fields are those of a `TranslateRequest`."""

    model: str = Field("", description="Name of the model; empty: the first with the direction.")
    allow_pivot: bool = Field(False, description="Whether to translate through a third language.")
    split_sentences: bool = Field(True, description="Whether to translate a segment sentence by sentence.")
    glossary: tuple[str, ...] = Field((), description="Ids of stored glossaries that apply, in their order.")
    placeholders: tuple[str, ...] = Field((), description="Kinds of placeholders that translations must have.")
    preserve_formatting: bool = Field(False, description="Whether letter case and final punctuation follow the text.")
    retranslate: bool = Field(False, description="Whether to translate texts again that the document has translated.")
    ignore_tags: tuple[str, ...] = Field((), description="Tags of HTML whose content is not translated, besides code.")
    columns: tuple[Annotated[str, Field(max_length=MAX_NAME)], ...] = Field(
        (), max_length=MAX_CHOSEN, description="Columns of tables to translate, by name or number; default: all."
    )
    csv_formulas: CsvFormulas = Field("escape", description="Whether an apostrophe precedes what is a formula in CSV.")

    @property
    def of_document(self) -> dict[str, Any]:
        """The options that a `DocumentRequest` has and a `TranslateRequest` lacks."""
        return self.model_dump(include=set(_OF_DOCUMENT))


@dataclass(frozen=True, slots=True)
class Job:
    """The translation of one document.

    Attributes:
        id: 32 hexadecimal digits; cannot be guessed.
        key: 64 hexadecimal digits: a second secret for interfaces that have one.
        account: id of the API key that pays for it; empty: none is required.
        name: of the file, without folders.
        source_language: ISO 639-1 code, or `auto`.
        created_seconds, expires_seconds: in Unix time. At its expiry, a job is deleted if it has ended.
        segments: number of the parts of different segments; 0 until the document is parsed.
        translated: number of those that are translated.
        characters: of the document's text, without markup.
        error: why it failed; otherwise empty.
    """

    id: str
    key: str
    account: str
    name: str
    source_language: str
    target_language: str
    options: JobOptions
    status: JobStatus
    created_seconds: float
    expires_seconds: float
    segments: int = 0
    translated: int = 0
    characters: int = 0
    error: str = ""


class TranslatedDocument(NamedTuple):
    """A translated document: its name, and its open file, which stays readable if the document is deleted."""

    name: str
    file: BinaryIO
    size_bytes: int


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Bounds of documents and of their store.

    Attributes:
        unpacked_bytes: size of the parts of a packed document.
        jobs: number of jobs in the store.
        store_bytes: size of all files in the store.
        keep_seconds: from the creation, or from the end of the translation, to the expiry.
    """

    document_bytes: int
    unpacked_bytes: int
    jobs: int
    store_bytes: int
    keep_seconds: float
