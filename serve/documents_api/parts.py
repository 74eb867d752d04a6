"""What every interface to documents needs."""

from dataclasses import dataclass

from dragoman.serve.documents.jobs import DocumentJobs
from dragoman.serve.documents_api.translator import SegmentTranslator
from dragoman.serve.edge.parameters import ParameterReader


@dataclass(frozen=True, slots=True)
class DocumentParts:
    """The jobs of documents and what requests for them go through.

    Attributes:
        jobs: None: the server has no state directory, and refuses documents.
        translator: checks languages and models.
        reader: of requests of the size of a document.
    """

    jobs: DocumentJobs | None
    translator: SegmentTranslator
    reader: ParameterReader
