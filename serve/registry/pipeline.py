"""The pipeline of one model: scheduler, engines, limits and translator, without an interface.

Pipelines share no state. The warm-up translates the golden sentences of the bundle through tokenizer, scheduler and
engine, and compares every token: a corrupt or wrongly exported model never serves. The sentences run together, which
tests batching too.
"""

import time
from collections.abc import Sequence

from dragoman.model.tokenizer.tokenizer import TextTokenizer
from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.bundle.directions import Directions, directions_of, start_tokens
from dragoman.serve.bundle.files import one_line
from dragoman.serve.bundle.manifest import GoldenSentence, ShortlistSpec
from dragoman.serve.bundle.tokenizer import load_tokenizer
from dragoman.serve.engine.engines import Models, NativeEngines, PythonEngines, Readiness
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.protect.word_pieces import continuing_ids
from dragoman.serve.runtime.attention import HeadAttention
from dragoman.serve.scheduler.request_scheduler import RequestScheduler
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


async def check_golden(
    golden: Sequence[GoldenSentence],
    directions: Directions,
    tokenizer: TextTokenizer,
    scheduler: RequestScheduler,
    *,
    source_suffix: tuple[int, ...],
    max_target_tokens: int,
    together: int,
) -> None:
    """Translates every golden sentence and compares the tokens.

    Args:
        golden: at least one sentence, with expected tokens, in one of the directions.
        source_suffix: tokens after every source.
        max_target_tokens: the limit that applied to the expected tokens.
        together: number of sentences submitted at once.

    Raises:
        GoldenMismatchError: if a source or target token differs, or there is no sentence.
        ServiceError: if the engine fails.
    """
    if not golden:
        raise GoldenMismatchError("golden sentences: none, expected at least one")
    specs = []
    for number, sentence in enumerate(golden):
        direction = directions.find(sentence.source_language, sentence.target_language)
        prefix, begin = ((), ()) if direction is None else (direction.source_prefix, direction.start)
        source_ids = (*prefix, *tokenizer.encode(sentence.source), *source_suffix)
        _compare(number, "source", sentence.source_ids, source_ids)
        options = SearchOptions(max_target_tokens=max_target_tokens, target_prefix=begin, start_tokens=len(begin))
        specs.append(SequenceSpec(source_ids, options))
    for start in range(0, len(golden), together):
        group = golden[start : start + together]
        sequences = await run_sequences(scheduler, specs[start : start + together], deadline_seconds=None)
        for number, (sentence, sequence) in enumerate(zip(group, sequences, strict=True), start):
            _compare(number, "target", sentence.target_ids, sequence.best.target_ids)


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
        vocabulary = TargetVocabulary.of(
            tokenizer.target_pieces, unk_id=tokenizer.target_unk_id, eos_id=manifest.eos_id
        )
        self.metrics = metrics
        continuing = tuple(continuing_ids(tokenizer.target_pieces, manifest.eos_id))
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
        """Translates the golden sentences and becomes ready.

        Raises GoldenMismatchError if a token differs, ServiceError if an engine fails.
        """
        await check_golden(
            self.bundle.golden,
            self.directions,
            self._tokenizer,
            self.scheduler,
            source_suffix=self.manifest.source_suffix,
            max_target_tokens=self.manifest.max_target_tokens,
            together=self.scheduler.capacity_rows,
        )
        self.readiness.verified = True

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
