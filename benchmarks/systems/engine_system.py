"""The engine of the service as a system that is compared with others, without tokenizer and network.

It imports neither torch nor what only another engine needs, because their memory would count.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from benchmarks.systems.engine import specs_of
from benchmarks.systems.native_engine import BareLoop, LiveNativeEngines, settings_of
from benchmarks.systems.translating import Batching, SourceSentence, Translator
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.engine.native.model import open_model, runs_natively
from dragoman.serve.native.library import FALLBACK, INSTRUCTIONS_VARIABLE
from dragoman.serve.observability.logs import configure_logs
from dragoman.serve.scheduler.sequence import longest_first

if TYPE_CHECKING:
    from benchmarks.systems.python_engine import LiveEngines

# The engine that the service would choose, the native loop alone, or the engine in Python, which runs the kernels of
# the native library or the standard operators of the graphs.
EngineKind = Literal["dragoman", "dragoman-loop", "dragoman-python", "dragoman-fallback"]
ENGINES: tuple[EngineKind, ...] = get_args(EngineKind)
Engines: TypeAlias = "LiveEngines | LiveNativeEngines | BareLoop"


class EngineTranslator(Translator):
    """Translates with engines that share a scheduler."""

    def __init__(self, folder: str, *, copies: int, threads: int, slots: int, engine: EngineKind = "dragoman") -> None:
        """Starts engines of a bundle, on the first GPU if its variant is cuda."""
        if engine == "dragoman-fallback":
            os.environ[INSTRUCTIONS_VARIABLE] = FALLBACK
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
    loop = engine == "dragoman-loop"
    if loop or (engine == "dragoman" and runs_natively("cpu", bundle)):
        kind, model = BareLoop if loop else LiveNativeEngines, open_model(bundle, threads)
        return lambda slots: kind(bundle, settings_of(bundle, engines=copies, slots=slots), model)
    from benchmarks.systems.python_engine import LiveEngines  # noqa: PLC0415 - their memory would count
    from dragoman.serve.runtime.device import DeviceGraphs  # noqa: PLC0415
    from dragoman.serve.runtime.placement import open_sessions  # noqa: PLC0415

    sessions = open_sessions(bundle, "auto", threads=threads)
    if isinstance(sessions, DeviceGraphs):
        graphs = sessions
        return lambda slots: LiveNativeEngines(
            bundle, settings_of(bundle, engines=copies, slots=slots), graphs.open(copies, slots)
        )
    return lambda slots: LiveEngines(sessions, engines=copies, slots=slots)


def load_engines(**options: Any) -> EngineTranslator:
    """Returns the translator of a process of `benchmarks.harness.process`; its standard output has answers only."""
    configure_logs("console")
    return EngineTranslator(**options)
