"""A model as the parts of `dragoman bench scheduling` measure it: a bundle, sentences, and how they are searched."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.systems.source_sentence import SourceSentence
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import Manifest
from serve.runtime.cpu import Sessions
from serve.search.options import SearchOptions

# Source ids and how to search.
Wish = tuple[tuple[int, ...], SearchOptions]


@dataclass(frozen=True, slots=True)
class ScheduledModel:
    """A model.

    Attributes:
        name: in tables.
        folder: its bundle.
        sentences: that it translates.
        sentences_file: where other processes read them.
    """

    name: str
    folder: Path
    sentences: list[SourceSentence]
    sentences_file: Path

    @property
    def manifest(self) -> Manifest:
        """The manifest of the bundle."""
        return Bundle.open(self.folder).manifest

    def sessions(self, threads: int) -> Sessions:
        """Opens the bundle."""
        return Sessions.load(Bundle.open(self.folder), threads)

    def wishes(self, beam_size: int = 1) -> list[Wish]:
        """Returns all sentences, to be searched with a beam."""
        return [(sentence.source_ids, search(*sentence.limits, beam_size)) for sentence in self.sentences]

    def made_up(self, source_tokens: int, target_tokens: int) -> Wish:
        """Returns a source of this length whose translation gets exactly that length."""
        words = [token for sentence in self.sentences for token in sentence.source_ids[:-1]]
        body = (words * source_tokens)[: source_tokens - 1]
        return (*body, self.manifest.eos_id), search(target_tokens, target_tokens)


def search(shortest: int, longest: int, beam_size: int = 1) -> SearchOptions:
    """Returns options for a translation between two lengths."""
    return SearchOptions(min_target_tokens=shortest, max_target_tokens=longest, beam_size=beam_size)
