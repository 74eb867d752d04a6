"""Everything between a valid request and the models, without an interface: scheduler, engines, translator, limits.

Served over the network by `serve.app`, and used in the same process by commands that translate without a server.
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry

from export.bundle import Bundle, BundleError
from export.bundle_tokenizer import load_tokenizer
from serve.engine import Engine, Model
from serve.golden import check_golden
from serve.lifecycle import Lifecycle, Stage
from serve.metrics import Metrics
from serve.request import RequestLimits
from serve.result_cache import ResultCache
from serve.scheduler import Scheduler
from serve.search_limits import SearchLimits
from serve.settings import ServeCommand
from serve.target_vocabulary import TargetVocabulary
from serve.translator import Translator


class Pipeline:
    """The objects of one served model, and their common start and stop."""

    def __init__(self, settings: ServeCommand, bundle: Bundle, registry: CollectorRegistry) -> None:
        """Builds what needs no model yet.

        Raises:
            BundleError: if alignments are asked for that the bundle cannot give.
            TokenizerError: if its tokenizer is not one.
        """
        manifest = bundle.manifest
        if settings.alignments and not manifest.alignment_heads:
            raise BundleError(
                f"{bundle.folder}: alignments: the bundle has no alignment heads: export it with --align LAYER:HEAD, "
                "or serve it without --alignments"
            )
        self._manifest = manifest
        self._golden = bundle.golden
        self._tokenizer = tokenizer = load_tokenizer(bundle)
        vocabulary = TargetVocabulary.of(
            tokenizer.target_pieces, unk_id=tokenizer.target_unk_id, eos_id=manifest.eos_id
        )
        self._engines: list[Engine] = []
        self._step_timeout_seconds = settings.step_timeout_seconds
        self._capacity = settings.total_slots + settings.max_waiting
        self.metrics = Metrics(registry, manifest.name)
        self.metrics.set_limits(settings.total_slots, settings.max_waiting)
        self.scheduler = Scheduler(
            settings.total_slots,
            settings.max_waiting,
            settings.prefill_token_budget,
            self.metrics,
            engines=settings.engine_count,
            running_token_budget=settings.running_token_budget,
        )
        self.lifecycle = Lifecycle(
            self.metrics,
            lambda: all(engine.healthy for engine in self._engines),
            lambda: any(engine.hanging for engine in self._engines),
        )
        self.limits = RequestLimits(
            directions=manifest.directions,
            max_texts=min(settings.max_texts, self._capacity),
            max_text_characters=settings.max_text_characters,
            max_rows=self._capacity,
            search=SearchLimits(
                max_target_tokens=manifest.max_target_tokens,
                max_rows=settings.slots,
                aligned=settings.alignments,
                vocabulary=vocabulary,
            ),
        )
        self.translator = Translator(
            tokenizer=tokenizer,
            vocabulary=vocabulary,
            scheduler=self.scheduler,
            lifecycle=self.lifecycle,
            metrics=self.metrics,
            source_suffix=manifest.source_suffix,
            max_source_tokens=manifest.max_source_tokens,
            default_timeout_seconds=settings.request_timeout_seconds,
            cache=None
            if settings.result_cache_bytes is None
            else ResultCache(settings.result_cache_bytes, self.metrics),
        )

    def start(self, models: Iterable[Model]) -> None:
        """Starts an engine for each model."""
        for model in models:
            engine = Engine(
                model,
                self.scheduler,
                self.metrics,
                bos_id=self._manifest.bos_id,
                eos_id=self._manifest.eos_id,
                pad_id=self._manifest.pad_id,
                max_target_tokens=self._manifest.max_target_tokens,
                step_timeout_seconds=self._step_timeout_seconds,
            )
            engine.start()
            self._engines.append(engine)

    async def warm_up(self) -> None:
        """Translates the golden sentences and becomes ready.

        Raises:
            GoldenMismatchError: if a token differs.
            ServiceError: if an engine fails.
        """
        await check_golden(
            self._golden,
            self._manifest.directions,
            self._tokenizer,
            self.scheduler,
            source_suffix=self._manifest.source_suffix,
            max_target_tokens=self._manifest.max_target_tokens,
            together=self._capacity,
        )
        self.lifecycle.enter(Stage.READY)

    def stop(self) -> None:
        """Stops the engines after their current step; whatever is not finished by then ends with DrainingError."""
        for engine in self._engines:
            engine.stop()
