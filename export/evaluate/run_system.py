"""Evaluates training runs: their best checkpoints translate with PyTorch, without a KV cache.

Several runs with the same tokenizer translate together as an ensemble.

Slow, and independent of the serving code: the scores are those of the model itself.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dragoman.export.evaluate.system import Progress, Search, SystemUnusableError
from dragoman.model.data.batches import plan_batches
from dragoman.model.data.corpus import Corpus
from dragoman.model.errors import RunError
from dragoman.model.network.ensemble import Ensemble
from dragoman.model.run import RunFolder, TrainedModel
from dragoman.model.search import Model, generate

BATCH_TOKENS = 4096


class RunSystem:
    """Training runs, at least one, and their search settings."""

    def __init__(self, folders: Sequence[Path], search: Search) -> None:
        """Stores them; raises SystemUnusableError if the search forbids repeated n-grams."""
        self._folders = folders
        self._search = search
        if search.no_repeat_ngram_tokens:
            given = f"no-repeat-ngram-tokens: {search.no_repeat_ngram_tokens}: {folders[0]}"
            raise SystemUnusableError(f"{given}: {self.kind}, expected a bundle or a server")

    @property
    def kind(self) -> str:
        """Implements `System.kind`."""
        return "run" if len(self._folders) == 1 else "ensemble"

    def translate(self, corpora: Sequence[Corpus], progress: Progress) -> list[list[str]]:
        """Implements `System.translate`; raises SystemUnusableError if no run can be loaded or a source is too long."""
        trained, model = self._load()
        sources = [self._sources(trained, corpus) for corpus in corpora]
        return [self._translate(trained, model, corpus_sources, progress) for corpus_sources in sources]

    def _load(self) -> tuple[TrainedModel, Model]:
        """Returns the first run, and its model or an ensemble with those of the others."""
        try:
            first, *others = [RunFolder(folder).load() for folder in self._folders]
        except RunError as error:
            raise SystemUnusableError(str(error)) from error
        for folder, other in zip(self._folders[1:], others, strict=True):
            if other.tokenizer.model != first.tokenizer.model:
                raise SystemUnusableError(f"{folder}: expected the tokenizer of {self._folders[0]} for an ensemble")
        return first, Ensemble([first.model, *(other.model for other in others)]) if others else first.model

    def _sources(self, trained: TrainedModel, corpus: Corpus) -> list[list[int]]:
        try:
            sources = trained.source_ids(corpus.direction, corpus.sources)
            start = trained.tokenizer.frame(trained.config.directions, corpus.direction).start
        except ValueError as error:
            raise SystemUnusableError(f"{self._folders[0]}: {error}") from error
        if start:
            raise SystemUnusableError(f"{self._folders[0]}: {corpus.direction}: forces a language, expected a bundle")
        longest = trained.config.model.max_source_tokens
        for number, source in enumerate(sources, start=1):
            if len(source) > longest:
                where = f"{self._folders[0]}: {corpus.direction}, sentence {number}"
                raise SystemUnusableError(f"{where}: {len(source)} tokens, expected at most {longest}")
        return sources

    def _translate(
        self, trained: TrainedModel, model: Model, sources: list[list[int]], progress: Progress
    ) -> list[str]:
        lengths = np.array([len(source) for source in sources])
        # Longest first: insufficient memory fails at once.
        order = np.argsort(-lengths, kind="stable").tolist()
        translations = [""] * len(sources)
        for plan in plan_batches(order, lengths, BATCH_TOKENS // self._search.beam_size):
            batch, search = [sources[index] for index in plan], self._search
            generated = generate(model, batch, search.beam_size, search.length_penalty)
            for index, item in zip(plan, generated, strict=True):
                translations[index] = trained.tokenizer.decode(item.target_ids)
            progress.update(len(plan))
        return translations
