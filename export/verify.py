"""`dragoman verify`: does the bundle say, token by token, what the PyTorch model says?

Uses the very runtime and search that serve. Every difference is listed with the gap between the two best logits, which
tells a near tie from a wrong graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict
from tqdm import tqdm

from export.bundle import Bundle, BundleError
from export.exportable import Exportable
from export.manifest import BundleDirection
from model.batches import pad
from model.corpus import Corpus, CorpusError, read_corpus
from model.generate import Generated, generate_greedy
from model.run import RunError, RunFolder
from model.tokenizer import TokenizerError
from serve.runtime import Runtime, Sessions
from serve.search import greedy

BATCH_ROWS = 50


class VerifyCommand(BaseSettings):
    """Compares a bundle with the PyTorch model that it was made from, token by token.

    Translates sentences with both, greedily. Lists every difference with the step at which it begins and how far the
    best logit was above the second best there. Exits with 1 if too few translations are identical.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_VERIFY_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = Field(description="folder of the bundle")
    run: Path = Field(description="folder of the training run that the bundle was made from")
    data: str = Field(description="sentences: multi30k:en-de, files:test.en,test.de or tsv:pairs.en-de.tsv")
    split: Literal["train", "validation", "test"] = Field("test", description="part of a data set that has parts")
    multi30k_folder: Path | None = Field(None, description="where Multi30k is; default: $DRAGOMAN_MULTI30K")
    sentences: int = Field(1000, gt=0, description="how many sentences to compare, from the beginning of the data")
    minimum_identical: float = Field(0.999, ge=0, le=1, description="share of identical translations that passes")

    def cli_cmd(self) -> None:
        """Compares; prints every difference and the share of identical translations."""
        try:
            bundle = Bundle.open(self.bundle)
            exportable = Exportable.of_run(RunFolder(self.run).load())
            corpus = read_corpus(self.data, self.split, self.multi30k_folder)
            texts = corpus.sources[: self.sentences]
            comparisons = compare(bundle, exportable, texts, self._direction(bundle, corpus).source_prefix)
        except (BundleError, RunError, CorpusError, TokenizerError) as error:
            raise SystemExit(f"dragoman verify: {error}") from error
        if not comparisons:
            raise SystemExit(f"dragoman verify: data: none of {len(texts)} sentences is short enough for the model")
        for comparison in comparisons:
            if not comparison.identical:
                print(comparison.describe())
        identical = sum(comparison.identical for comparison in comparisons)
        score_error = max(comparison.score_error for comparison in comparisons)
        print(f"{identical} of {len(comparisons)} translations are token-identical, scores within {score_error:.1e}")
        if identical < self.minimum_identical * len(comparisons):
            raise SystemExit(f"dragoman verify: fewer than {self.minimum_identical:.1%} are identical")

    def _direction(self, bundle: Bundle, corpus: Corpus) -> BundleDirection:
        directions = {(direction.source, direction.target): direction for direction in bundle.manifest.directions}
        if corpus.languages not in directions:
            expected = " or ".join(map(str, bundle.manifest.directions))
            raise CorpusError(f"data: {self.data}: languages are {corpus.direction}, expected {expected}")
        return directions[corpus.languages]


class Answer(NamedTuple):
    """What a bundle makes of a source.

    Attributes:
        target_ids: without the end token.
        score: sum of the natural log-probabilities of the tokens, the end token included.
    """

    target_ids: tuple[int, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One sentence, translated by PyTorch and by the bundle."""

    text: str
    expected: Generated
    actual: Answer

    @property
    def identical(self) -> bool:
        """True if both gave the same tokens."""
        return self.actual.target_ids == self.expected.target_ids

    @property
    def score_error(self) -> float:
        """How far the scores are apart, in nats; 0 where the tokens differ and scores cannot be compared."""
        return abs(self.actual.score - self.expected.score) if self.identical else 0.0

    def describe(self) -> str:
        """Tells where the translations part."""
        both = zip(self.expected.target_ids, self.actual.target_ids, strict=False)
        shorter = min(len(self.expected.target_ids), len(self.actual.target_ids))
        step = next((i for i, (a, b) in enumerate(both) if a != b), shorter)
        gap = self.expected.gaps[min(step, len(self.expected.gaps) - 1)]
        return f"differs from step {step}, where the best logit led by {gap:.2e}: {self.text}"


def compare(
    bundle: Bundle, exportable: Exportable, texts: Sequence[str], source_prefix: tuple[int, ...] = ()
) -> list[Comparison]:
    """Translates texts of one direction with both, in batches of like length; leaves out those that are too long."""
    suffix, longest = bundle.manifest.source_suffix, bundle.manifest.max_source_tokens
    sources = [((*source_prefix, *exportable.tokenizer.encode(text), *suffix), text) for text in texts]
    sources = sorted((pair for pair in sources if len(pair[0]) <= longest), key=lambda pair: len(pair[0]))
    runtime = Runtime(Sessions.load(bundle, threads=1), slots=BATCH_ROWS)
    comparisons = []
    with tqdm(total=len(sources), desc="comparing", unit="sentence") as progress:
        for start in range(0, len(sources), BATCH_ROWS):
            batch = sources[start : start + BATCH_ROWS]
            ids = [source_ids for source_ids, _ in batch]
            answers = zip(batch, generate_greedy(exportable.model, ids), _translate(runtime, bundle, ids), strict=True)
            comparisons += [Comparison(text, expected, actual) for (_, text), expected, actual in answers]
            progress.update(len(batch))
    return comparisons


def translate(bundle: Bundle, sources: Sequence[tuple[int, ...]]) -> list[Answer]:
    """Returns what a bundle answers to each source, greedily."""
    runtime = Runtime(Sessions.load(bundle, threads=1), slots=BATCH_ROWS)
    batches = (sources[start : start + BATCH_ROWS] for start in range(0, len(sources), BATCH_ROWS))
    return [answer for batch in batches for answer in _translate(runtime, bundle, batch)]


def _translate(runtime: Runtime, bundle: Bundle, sources: Sequence[tuple[int, ...]]) -> list[Answer]:
    manifest = bundle.manifest
    rows = len(sources)
    lengths = np.array([len(source) for source in sources], np.int32)
    runtime.encode(pad(sources, manifest.pad_id).numpy(), lengths, np.arange(rows))
    token_ids = np.full(rows, manifest.bos_id)
    targets: list[list[int]] = [[] for _ in sources]
    scores = np.zeros(rows)
    running = np.ones(rows, np.bool_)
    for position in range(manifest.max_target_tokens):
        step = greedy(runtime.decode_step(token_ids, np.full(rows, position, np.int32), lengths))
        token_ids = step.token_ids
        scores += np.where(running, step.scores, 0.0)
        running &= token_ids != manifest.eos_id
        for row in np.flatnonzero(running).tolist():
            targets[row].append(int(token_ids[row]))
        if not running.any():
            break
    return [Answer(tuple(target), score) for target, score in zip(targets, scores.tolist(), strict=True)]
