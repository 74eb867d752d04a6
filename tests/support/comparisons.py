"""Translations of a bundle through the engine, compared with those of its PyTorch model; bundles of imports."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dragoman.export.answer import Answer
from dragoman.export.imports.golden import golden_samples
from dragoman.export.make_bundle import BundleOptions, write_bundle
from dragoman.export.source_model import Exportable, find_direction
from dragoman.export.verify.reference import Reference
from dragoman.export.verify.sync_engine import SyncEngine
from dragoman.model.config import Direction
from dragoman.model.samples import Sample
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.bundle.tokenizer import load_tokenizer
from dragoman.serve.runtime.sessions import load_sessions
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.options import SearchOptions

TOGETHER = 50
# The length of answers, without start tokens.
LIMIT = 20
GOLDEN_STEP = 4


class Comparison(NamedTuple):
    """One sentence, translated by both."""

    text: str
    expected: Answer
    actual: Answer

    @property
    def identical(self) -> bool:
        return self.actual.target_ids == self.expected.target_ids

    @property
    def score_error(self) -> float:
        """Difference of the scores in nats; 0 if the tokens differ, because the scores are then not comparable."""
        return abs(self.actual.score - self.expected.score) if self.identical else 0.0


def ignore(_: int) -> None:
    """Ignores progress."""


def compare(
    bundle: Bundle, exportable: Exportable, texts: Sequence[str], source_prefix: tuple[int, ...] = ()
) -> list[Comparison]:
    """Translates texts of one direction greedily with both; skips texts that are too long."""
    manifest = bundle.manifest
    sources = {text: exportable.source_ids(source_prefix, text) for text in texts}
    fitting = {text: ids for text, ids in sources.items() if len(ids) <= manifest.max_source_tokens}
    options = SearchOptions(max_target_tokens=manifest.max_target_tokens)
    engine = SyncEngine(load_sessions(bundle, threads=1), TOGETHER)
    actual = engine.translate([SequenceSpec(ids, options) for ids in fitting.values()], TOGETHER, ignore)
    expected = Reference(exportable.network).translate(list(fitting.values()), 1, 1.0, ignore)
    return [Comparison(*pair) for pair in zip(fitting, expected, actual, strict=True)]


def targets(
    bundle: Bundle, sources: Sequence[Sequence[int]], beam_size: int, together: int = 64
) -> list[tuple[int, ...]]:
    """Returns the translations of sources, `together` rows at a time."""
    engine = SyncEngine(load_sessions(bundle, threads=1), together)
    options = SearchOptions(max_target_tokens=bundle.manifest.max_target_tokens, beam_size=beam_size)
    specs = [SequenceSpec(tuple(source), options) for source in sources]
    return [spec.target_ids for spec in engine.translate(specs, together // beam_size, ignore)]


def write_imported(exportable: Exportable, folder: Path, texts: Sequence[str] = (), **options: Any) -> Bundle:
    """Exports an imported model; its golden sentences are texts in every direction, or else some of the import."""
    directions = [Direction(source=item.source, target=item.target) for item in exportable.directions]
    samples = [Sample(direction, text) for direction in directions for text in texts]
    samples = samples or golden_samples(exportable)[::GOLDEN_STEP]
    return write_bundle(exportable, samples, folder, BundleOptions("imported", **options))


class Answers(NamedTuple):
    """The translations of a bundle without start tokens, the sources and the direction."""

    targets: list[tuple[int, ...]]
    sources: list[tuple[int, ...]]
    direction: BundleDirection


def answers(
    bundle: Bundle,
    languages: tuple[str, str],
    texts: Sequence[str],
    beam_size: int,
    *,
    empty: bool = True,
    threads: int = 1,
) -> Answers:
    direction = find_direction(bundle.manifest, languages)
    tokenizer = load_tokenizer(bundle)
    sources = [(*direction.source_prefix, *tokenizer.encode(text), *bundle.manifest.source_suffix) for text in texts]
    starts = len(direction.start)
    options = SearchOptions(
        max_target_tokens=LIMIT + starts,
        min_target_tokens=0 if empty else starts + 1,
        beam_size=beam_size,
        target_prefix=direction.start,
        start_tokens=starts,
    )
    engine = SyncEngine(load_sessions(bundle, threads), 200)
    found = engine.translate([SequenceSpec(source, options) for source in sources], 200 // beam_size, ignore)
    return Answers([result.target_ids[starts:] for result in found], sources, direction)
