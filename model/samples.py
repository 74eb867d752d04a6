"""Samples of a run: source texts of every direction, from which an export makes golden sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.model.config import Direction
from dragoman.model.data.corpus import Corpus, read_lines
from dragoman.model.errors import CorpusError

# Samples per direction, spread evenly over its corpus.
SAMPLES = 32


@dataclass(frozen=True, slots=True)
class Sample:
    """A source text for a golden sentence."""

    direction: Direction
    text: str


def choose_samples(
    directions: Sequence[Direction], corpora: Sequence[Corpus], earlier: Sequence[Sample]
) -> list[Sample]:
    """Returns samples of every direction: from its first corpus, or the earlier ones if it has no corpus."""
    samples: list[Sample] = []
    for direction in directions:
        corpus = next((item for item in corpora if item.direction == direction), None)
        if corpus is None:
            samples += [item for item in earlier if item.direction == direction]
        else:
            stride = max(1, len(corpus) // SAMPLES)
            samples += [Sample(direction, text) for text in corpus.sources[::stride][:SAMPLES]]
    return samples


def format_samples(samples: Sequence[Sample]) -> str:
    """Returns a line per sample: source language, target language and text, separated by tabs."""
    return "".join(f"{sample.direction.source}\t{sample.direction.target}\t{sample.text}\n" for sample in samples)


def read_samples(path: Path, directions: Sequence[Direction]) -> list[Sample]:
    """Reads the samples of a run; raises CorpusError if the file is unreadable or a line fits no direction."""
    known = {(direction.source, direction.target): direction for direction in directions}
    samples = []
    for number, line in enumerate(read_lines(path), start=1):
        source, _, rest = line.partition("\t")
        target, _, text = rest.partition("\t")
        if (source, target) not in known or not text:
            expected = " or ".join(map(str, directions))
            raise CorpusError(
                f"{path}: line {number}: expected the languages of {expected} and a text, separated by tabs"
            )
        samples.append(Sample(known[source, target], text))
    return samples
