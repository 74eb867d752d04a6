"""Loads what the engines of a model compute with, on the CPU or on GPUs."""

from collections.abc import Callable

from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.engine.engines import Models
from dragoman.serve.engine.native.model import open_model, runs_natively
from dragoman.serve.native.loop import LoopModel
from dragoman.serve.runtime.device import DeviceGraphs
from dragoman.serve.runtime.driver import gpus
from dragoman.serve.runtime.model import Model
from dragoman.serve.runtime.native import NativeSessions
from dragoman.serve.runtime.sessions import load_sessions
from dragoman.serve.settings import ServeSettings


def load_engines(settings: ServeSettings, bundle: Bundle) -> Models:
    """Returns what the engines of a bundle compute with: native engines where they can run it.

    Raises BundleError if ONNX Runtime rejects a graph, or a GPU has too little memory.
    """
    if settings.device == "cuda":
        return load_on_gpus(settings, bundle)
    if runs_natively(settings.device, bundle):
        return open_model(bundle, settings.engine_threads)
    return load_models(settings, bundle)


def load_models(
    settings: ServeSettings,
    bundle: Bundle,
    change: Callable[[NativeSessions], NativeSessions] = lambda sessions: sessions,
) -> list[Model]:
    """Returns a model for each engine in Python, on the CPU; they share the sessions.

    Args:
        settings: with engines and slots resolved by `dragoman.serve.registry.loader`.
        change: wraps the sessions without changing their results.

    Raises BundleError if ONNX Runtime rejects a graph.
    """
    sessions = change(load_sessions(bundle, settings.engine_threads, aligned=bool(settings.alignments)))
    return [sessions.runtime(settings.slots) for _ in range(settings.engine_count)]


def load_on_gpus(settings: ServeSettings, bundle: Bundle) -> LoopModel:
    """Returns engines with sessions and memory of their own; they are assigned to the GPUs in turn.

    Raises BundleError if ONNX Runtime rejects a graph or the memory of a GPU is too small.
    """
    limit = settings.device_memory_bytes
    graphs = DeviceGraphs(bundle, len(gpus()), aligned=bool(settings.alignments), memory_bytes=limit)
    return graphs.open(settings.engine_count, settings.slots)
