"""Requests that share a job: the texts and sentences of each, and what is left of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from dragoman.serve.errors import ServiceError
from dragoman.serve.translation.job import Job, SegmentedText, Sentence
from dragoman.serve.translation.response import TranslationResponse

# What a request has in the end, with its number among those of the job.
Outcome = tuple[int, TranslationResponse | ServiceError]


@dataclass(slots=True, eq=False)
class Share:
    """A request among those of a job.

    Attributes:
        number: of the request among those of the job.
        cuts: its texts in sentences.
        sentences: of all its texts.
        searched: those that the result cache does not have.
        waiting: how many of them have neither a translation nor an error.
    """

    number: int
    cuts: Sequence[SegmentedText]
    sentences: list[Sentence] = field(default_factory=list)
    searched: list[Sentence] = field(default_factory=list)
    waiting: int = 0

    @property
    def error(self) -> ServiceError | None:
        """The error of the first sentence that failed; None: none has."""
        return next((sentence.error for sentence in self.searched if sentence.error is not None), None)


def divide(job: Job) -> tuple[list[Share], list[Share]]:
    """Returns the share of each request in a job whose sentences are looked up, and that of each searched sentence."""
    cuts = iter(job.cuts)
    shares = [Share(number, list(islice(cuts, texts))) for number, texts in enumerate(job.shares)]
    of_text = [share for share in shares for _ in share.cuts]
    for sentence in job.sentences:
        of_text[sentence.number].sentences.append(sentence)
    of_searched = [of_text[sentence.number] for sentence in job.searched]
    for share, sentence in zip(of_searched, job.searched, strict=True):
        share.searched.append(sentence)
        share.waiting += 1
    return shares, of_searched


def part_of(job: Job, shares: Sequence[Share]) -> Job:
    """Returns the part of a job that belongs to some requests."""
    return replace(
        job,
        texts=(),
        cuts=[cut for share in shares for cut in share.cuts],
        sentences=[sentence for share in shares for sentence in share.sentences],
        searched=[sentence for share in shares for sentence in share.searched],
    )
