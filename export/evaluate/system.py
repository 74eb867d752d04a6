"""The interface of systems under evaluation."""

from collections.abc import Sequence
from typing import Protocol

from dragoman.model.data.corpus import Corpus
from dragoman.model.errors import UserError
from dragoman.serve.translation.fields import SearchFields


class Progress(Protocol):
    """A progress bar, for example `tqdm`."""

    def update(self, n: float = 1) -> object:
        """Adds `n` translated sentences."""


class SystemUnusableError(UserError):
    """The name is no system, or the system cannot translate the data. The message has the name and the expectation."""


class Search(SearchFields):
    """Search settings as reports name them."""

    def __str__(self) -> str:
        name = "greedy" if self.beam_size == 1 else f"beam {self.beam_size}, length penalty {self.length_penalty}"
        size = self.no_repeat_ngram_tokens
        return f"{name}, no repeated {size}-gram" if size else name


class System(Protocol):
    """A system that translates."""

    @property
    def kind(self) -> str:
        """One of `run`, `ensemble`, `bundle`, `server`, `file`."""

    def translate(self, corpora: Sequence[Corpus], progress: Progress) -> list[list[str]]:
        """Returns translations by corpus, and advances `progress`; raises SystemUnusableError if a sentence fails."""
