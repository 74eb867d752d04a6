"""Loads a model for each engine, on the CPU or on GPUs."""

from collections.abc import Callable
from itertools import cycle

from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.engine.engines import Models
from dragoman.serve.engine.native.model import open_model, runs_natively
from dragoman.serve.runtime.cuda.device import Device
from dragoman.serve.runtime.cuda.driver import gpus
from dragoman.serve.runtime.cuda.runtime import DeviceSessions
from dragoman.serve.runtime.host import HostSessions
from dragoman.serve.runtime.model import Model
from dragoman.serve.runtime.sessions import load_sessions
from dragoman.serve.settings import ServeSettings


def load_engines(settings: ServeSettings, bundle: Bundle) -> Models:
    """Returns what the engines of a bundle compute with: native engines where they can run it.

    Raises BundleError if ONNX Runtime rejects a graph.
    """
    if runs_natively(settings.device, bundle):
        return open_model(bundle, settings.engine_threads)
    return load_models(settings, bundle)


def load_models(
    settings: ServeSettings, bundle: Bundle, change: Callable[[HostSessions], HostSessions] = lambda sessions: sessions
) -> list[Model]:
    """Returns a model for each engine in Python; on the CPU they share the sessions.

    Args:
        settings: with device, engines and slots resolved by `dragoman.serve.registry.loader`.
        change: wraps the sessions without changing their results; CPU only.

    Raises BundleError if ONNX Runtime rejects a graph.
    """
    if settings.device == "cuda":
        return load_on_gpus(settings, bundle)
    sessions = change(load_sessions(bundle, settings.engine_threads, aligned=bool(settings.alignments)))
    return [sessions.runtime(settings.slots) for _ in range(settings.engine_count)]


def load_on_gpus(settings: ServeSettings, bundle: Bundle) -> list[Model]:
    """Returns a model for each engine, each with its own sessions; engines are assigned to the GPUs in turn.

    Raises BundleError if ONNX Runtime rejects a graph or the memory of a GPU is too small.
    """
    models: list[Model] = []
    for number, gpu in zip(range(settings.engine_count), cycle(range(len(gpus())))):
        sessions = DeviceSessions.load(
            bundle, Device("cuda", gpu), aligned=bool(settings.alignments), memory_bytes=settings.device_memory_bytes
        )
        try:
            models.append(sessions.runtime(settings.slots))
        except Exception as error:  # exceptions of ONNX Runtime share no base class
            problem = "out of device memory: use fewer, or --device-memory-bytes"
            raise BundleError(f"--slots: {settings.slots}: {problem}: engine {number}, GPU {gpu}: {error}") from error
    return models
