"""The engine of the service as a system that is compared with others, without tokenizer and network.

It imports neither torch nor what only another engine needs, because their memory would count.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarks.harness.errors import BenchmarkError
from benchmarks.systems.native_engine import BareLoop, LiveNativeEngines, settings_of, specs_of
from benchmarks.systems.translating import Batching, SourceSentence, Translator
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.engine.native.model import open_model, runs_natively
from dragoman.serve.observability.logs import configure_logs
from dragoman.serve.scheduler.sequence import longest_first

# The engine of the service, or the native loop alone.
EngineKind = Literal["dragoman", "dragoman-loop"]
ENGINES: tuple[EngineKind, ...] = get_args(EngineKind)
Engines = LiveNativeEngines | BareLoop


class EngineTranslator(Translator):
    """Translates with engines that share a scheduler."""

    def __init__(self, folder: str, *, copies: int, threads: int, slots: int, engine: EngineKind = "dragoman") -> None:
        """Starts engines of a bundle, on the first GPU if its variant is cuda."""
        bundle = Bundle.open(Path(folder))
        self._has_shortlist = bundle.manifest.shortlist is not None
        self._start = _starter(bundle, engine, copies, threads)
        self._slots, self._engines = slots, self._start(slots)

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence. Rows in `batching` become the size of each engine."""
        if batching.unit == "rows" and batching.size != self._slots:
            self.close()
            self._slots, self._engines = batching.size, self._start(batching.size)
        ended = self._engines.translate(specs_of(sentences, beam_size, shortlist=self._has_shortlist), longest_first)
        return [sequence.best.target_ids for sequence in ended]

    def close(self) -> None:
        """Stops the engines."""
        self._engines.close()


def _starter(bundle: Bundle, engine: EngineKind, copies: int, threads: int) -> Callable[[int], Engines]:
    """Returns what starts engines with a number of rows each."""
    if runs_natively("cpu", bundle):
        kind, model = BareLoop if engine == "dragoman-loop" else LiveNativeEngines, open_model(bundle, threads)
        return lambda slots: kind(bundle, settings_of(bundle, engines=copies, slots=slots), model)
    from dragoman.serve.runtime.device import DeviceGraphs  # noqa: PLC0415 - its memory would count
    from dragoman.serve.runtime.placement import open_sessions  # noqa: PLC0415

    graphs = open_sessions(bundle, "auto", threads=threads)
    if not isinstance(graphs, DeviceGraphs):
        raise BenchmarkError(f"{bundle.folder}: expected a GPU, or graphs for the native library and that library")
    return lambda slots: LiveNativeEngines(
        bundle, settings_of(bundle, engines=copies, slots=slots), graphs.open(copies, slots)
    )


def load_engines(**options: Any) -> EngineTranslator:
    """Returns the translator of a process of `benchmarks.harness.process`; its standard output has answers only."""
    configure_logs("console")
    return EngineTranslator(**options)
