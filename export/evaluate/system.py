"""What every kind of system that can be evaluated has in common; `export.evaluate.systems` tells the kinds apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from model.data.corpus import Corpus


class Progress(Protocol):
    """A progress bar, of which `tqdm` is one."""

    def update(self, n: float = 1) -> object:
        """Tells that `n` more sentences are translated."""


class SystemUnusableError(Exception):
    """This is no system, or it does not translate the data; the message names it and what was expected."""


@dataclass(frozen=True, slots=True)
class Search:
    """How translations are searched for; a beam of one hypothesis is greedy search."""

    beam_size: int
    length_penalty: float

    def __str__(self) -> str:
        return "greedy" if self.beam_size == 1 else f"beam {self.beam_size}, length penalty {self.length_penalty}"


class System(Protocol):
    """Something that translates."""

    @property
    def kind(self) -> str:
        """Returns `run`, `bundle`, `server` or `file`."""

    def translate(self, corpora: Sequence[Corpus], progress: Progress) -> list[list[str]]:
        """Returns the translation of every source of every corpus, telling the progress by the sentence.

        Raises:
            SystemUnusableError: if one is not translated.
        """
