"""What the engines of a served model compute with, on the CPU or on GPUs. Called by `serve.registry.loader`."""

from collections.abc import Callable
from itertools import cycle

from serve.bundle.bundle import Bundle, BundleError
from serve.runtime.cpu import Runtime, Sessions, prefetched_rows
from serve.runtime.cuda.device import Device
from serve.runtime.cuda.driver import gpus
from serve.runtime.cuda.runtime import DeviceSessions
from serve.runtime.model import Model
from serve.settings import ServeSettings


def load_models(
    settings: ServeSettings, bundle: Bundle, change: Callable[[Sessions], Sessions] = lambda sessions: sessions
) -> list[Model]:
    """Returns a model for each engine; on the CPU they share the sessions.

    Args:
        settings: of the model, settled by `serve.registry.loader`.
        bundle: what is loaded.
        change: puts something around the sessions, whose answers it must not change; by default nothing. CPU only.

    Raises:
        BundleError: if ONNX Runtime refuses a graph.
    """
    if settings.device == "cuda":
        return load_on_gpus(settings, bundle)
    sessions = change(Sessions.load(bundle, settings.engine_threads, aligned=settings.alignments))
    return [Runtime(sessions, settings.slots, prefetched_rows(settings.slots)) for _ in range(settings.engine_count)]


def load_on_gpus(settings: ServeSettings, bundle: Bundle) -> list[Model]:
    """Returns a model for each engine, each with its own sessions; they take turns among the GPUs.

    Raises:
        BundleError: if ONNX Runtime refuses a graph, or a GPU has not the memory after all.
    """
    models: list[Model] = []
    for number, gpu in zip(range(settings.engine_count), cycle(range(len(gpus())))):
        sessions = DeviceSessions.load(
            bundle, Device("cuda", gpu), aligned=settings.alignments, memory_bytes=settings.device_memory_bytes
        )
        try:
            models.append(sessions.runtime(settings.slots, prefetched_rows(settings.slots)))
        except Exception as error:  # ONNX Runtime's exceptions share no base class of their own
            problem = "expected memory for as many: use fewer, or --device-memory-bytes"
            raise BundleError(f"--slots: {settings.slots}: {problem}: engine {number}, GPU {gpu}: {error}") from error
    return models
