"""The pipeline of one model: scheduler, engines, limits and translator, without an interface.

Pipelines share no state. The warm-up translates the golden sentences of the bundle through tokenizer, scheduler and
engine, and compares every token: a corrupt or wrongly exported model never serves. The sentences run together, which
tests batching too.
"""

import time

from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.bundle.directions import directions_of, start_tokens
from dragoman.serve.bundle.files import one_line
from dragoman.serve.bundle.manifest import GoldenSentence, ShortlistSpec
from dragoman.serve.bundle.tokenizer import load_tokenizer
from dragoman.serve.engine.engines import Models, NativeEngines, PythonEngines, Readiness
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.protect.word_pieces import continuing_ids
from dragoman.serve.runtime.attention import HeadAttention
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.settings import ServeSettings
from dragoman.serve.translation.cache import ResultCache
from dragoman.serve.translation.request import RequestLimits, SearchLimits
from dragoman.serve.translation.segments import TargetVocabulary, TextModel
from dragoman.serve.translation.submission import run_sequences
from dragoman.serve.translation.translator import Translator


class GoldenMismatchError(Exception):
    """The model differs from the exported one; the message names the first golden sentence that differs."""


def _compare(number: int, side: str, expected: tuple[int, ...], actual: tuple[int, ...]) -> None:
    if actual != expected:
        problem = f"golden sentence {number}: {side} tokens are {actual}, expected {expected}"
        raise GoldenMismatchError(one_line(problem))


# Far more than a step takes: a model that does not answer for this long hangs.
STOP_SECONDS = 2.0


def _uses_shortlist(settings: ServeSettings, listed: ShortlistSpec | None, *, native: bool) -> bool | None:
    """Returns whether searches that do not choose use the shortlist of a model; None: it has none.

    Engines that are not native gain nothing from it: they compute the whole vocabulary.
    """
    if listed is None:
        return None
    return native and listed.default if settings.shortlist is None else settings.shortlist


class Pipeline:
    """The objects of one served model."""

    def __init__(self, settings: ServeSettings, bundle: Bundle, metrics: Metrics, *, native: bool = False) -> None:
        """Builds everything that needs no loaded model.

        Args:
            settings: with device, engines and slots resolved.
            native: whether native engines run the bundle.

        Raises:
            BundleError: if alignments are enabled and the bundle has no alignment heads.
            TokenizerError: if the tokenizer is invalid.
        """
        manifest = bundle.manifest
        if settings.alignments and not manifest.alignment_heads:
            raise BundleError(
                f"{bundle.folder}: alignments: the bundle has no alignment heads: export it with --align LAYER:HEAD, "
                "or serve it without --alignments"
            )
        self.bundle = bundle
        self.manifest = manifest
        self.settings = settings
        self.directions = directions_of(manifest)
        self._tokenizer = tokenizer = load_tokenizer(bundle)
        pieces = tokenizer.target_pieces
        vocabulary = TargetVocabulary.of(pieces, unk_id=tokenizer.target_unk_id, eos_id=manifest.eos_id)
        self.metrics = metrics
        continuing = tuple(continuing_ids(pieces, manifest.eos_id))
        self.engines = (NativeEngines if native else PythonEngines)(settings, bundle, metrics, continuing)
        self.scheduler = self.engines.scheduler
        self.readiness = Readiness(self.metrics, self.engines.running)
        self.limits = RequestLimits(
            max_texts=min(settings.max_texts, self.scheduler.capacity_rows),
            max_text_characters=settings.max_text_characters,
            max_rows=self.scheduler.capacity_rows,
            search=SearchLimits(
                max_target_tokens=manifest.max_target_tokens - start_tokens(manifest),
                max_rows=settings.slots,
                beam_size=min(manifest.beam_size, settings.slots),
                aligned=bool(settings.alignments),
                vocabulary=vocabulary,
                shortlist=_uses_shortlist(settings, manifest.shortlist, native=native),
            ),
        )
        self.translator = Translator(
            TextModel(
                tokenizer,
                vocabulary,
                manifest.source_suffix,
                manifest.max_source_tokens,
                None if manifest.confidence is None else manifest.confidence.least,
                manifest.context_separator,
            ),
            self.scheduler,
            self.readiness,
            self.metrics,
            spare_rows=settings.max_waiting // 2,
            cache=None
            if settings.result_cache_bytes is None
            else ResultCache(settings.result_cache_bytes, self.metrics),
            attention=HeadAttention(bundle) if native and settings.alignments else None,
        )

    def start(self, models: Models) -> None:
        """Starts the engines with what `load_models` or `open_model` returned. Called in the event loop."""
        self.engines.start(models)

    def refresh(self) -> None:
        """Updates the gauges that change with time."""
        self.engines.publish()
        self.metrics.oldest.set(self.scheduler.oldest_seconds)

    async def warm_up(self) -> None:
        """Translates the golden sentences, compares every token and becomes ready.

        Raises:
            GoldenMismatchError: if a source or target token differs, or there is no sentence.
            ServiceError: if an engine fails.
        """
        golden, together = list(enumerate(self.bundle.golden)), self.scheduler.capacity_rows
        if not golden:
            raise GoldenMismatchError("golden sentences: none, expected at least one")
        for start in range(0, len(golden), together):
            group = golden[start : start + together]
            specs = [self._golden_spec(*numbered) for numbered in group]
            sequences = await run_sequences(self.scheduler, specs, deadline_seconds=None)
            for (number, sentence), sequence in zip(group, sequences, strict=True):
                _compare(number, "target", sentence.target_ids, sequence.best.target_ids)
        self.readiness.verified = True

    def _golden_spec(self, number: int, sentence: GoldenSentence) -> SequenceSpec:
        direction = self.directions.find(sentence.source_language, sentence.target_language)
        prefix, begin = ((), ()) if direction is None else (direction.source_prefix, direction.start)
        source_ids = (*prefix, *self._tokenizer.encode(sentence.source), *self.manifest.source_suffix)
        _compare(number, "source", sentence.source_ids, source_ids)
        most = self.manifest.max_target_tokens
        return SequenceSpec(source_ids, SearchOptions(most, target_prefix=begin, start_tokens=len(begin)))

    def stop(self) -> None:
        """Stops the engines after their current step; unfinished sequences end with DrainingError.

        A hanging engine is abandoned after `STOP_SECONDS`, a limit for all engines together.
        """
        end_seconds = time.monotonic() + STOP_SECONDS
        for engine in self.engines.running:
            engine.stop(max(0.0, end_seconds - time.monotonic()))
        # Frees weights and caches now instead of at the next garbage collection.
        self.engines.running.clear()

    def close(self) -> None:
        """Frees what the event loop watches. Called in its thread, after `stop`."""
        self.refresh()
        self.engines.close()
