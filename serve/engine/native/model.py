"""Opens bundles with native graphs for the native loop: sessions of ONNX Runtime without the interpreter."""

import numpy as np

from dragoman.serve.bundle.bundle import SHORTLIST_FILE, WEIGHTS_FILE, Bundle, BundleError
from dragoman.serve.bundle.manifest import CacheSpec, Length, SharedWeight
from dragoman.serve.native.loop import LoopConfig, LoopError, LoopModel, ModelConfig, TensorSpec, loop_library
from dragoman.serve.observability.instruments import SEQUENCE_BUCKETS
from dragoman.serve.observability.request_metrics import LATENCY_BUCKETS
from dragoman.serve.settings import ServeSettings

# How ONNX numbers the types of elements.
ONNX_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}
ELEMENT_TYPES = {"float": ONNX_TYPES["float32"], "int8": ONNX_TYPES["int8"]}


def runs_natively(device: str, bundle: Bundle) -> bool:
    """Returns whether the loop can run a bundle: on a GPU, or its graphs are native, and their kernels run here."""
    return device == "cuda" or (bundle.manifest.cache is not None and not _why_no_kernels())


def _why_no_kernels() -> str:
    """Returns why kernels do not run here; empty if they do. The first call lets ONNX Runtime register them."""
    from dragoman.serve.runtime.onnx_runtime import why_no_kernels  # noqa: PLC0415 - only serving imports ONNX Runtime

    return why_no_kernels()


def open_model(bundle: Bundle, threads: int) -> LoopModel:
    """Opens the sessions of a bundle with native graphs; raises BundleError if ONNX Runtime rejects a graph."""
    manifest, folder = bundle.manifest, bundle.folder
    if manifest.cache is None:
        raise BundleError(f"{folder}: expected native graphs")
    if reason := _why_no_kernels():
        raise BundleError(f"{folder}: no native kernels: {reason}")
    config = ModelConfig(
        encoder=bundle.encoder_path,
        decoder=bundle.decoder_path,
        choose=bundle.choose_path,
        weights=folder / WEIGHTS_FILE,
        encoder_weights=tuple(_weight(weight, weight.encoder_name) for weight in manifest.shared_weights),
        decoder_weights=tuple(_weight(weight, weight.decoder_name) for weight in manifest.shared_weights),
        source_cache=_cache(manifest.cache, "source", manifest.max_source_tokens),
        target_cache=_cache(manifest.cache, "target", manifest.max_target_tokens),
        threads=threads,
        vocabulary=manifest.vocabulary_size,
        alignment_heads=len(manifest.alignment_heads),
        shortlists=manifest.shortlist is not None,
    )
    try:
        return LoopModel(loop_library(), config)
    except LoopError as error:
        raise BundleError(f"{folder}: rejected by ONNX Runtime: {error}") from error


def loop_config(settings: ServeSettings, bundle: Bundle, continuing_ids: tuple[int, ...] = ()) -> LoopConfig:
    """Returns slots, budgets and limits of the loop of a bundle, whose `continuing_ids` continue a word."""
    manifest = bundle.manifest
    return LoopConfig(
        engine_rows=settings.slots,
        engines=settings.engine_count,
        prefill_token_budget=settings.prefill_token_budget,
        running_token_budget=settings.running_token_budget,
        begin_id=manifest.bos_id,
        end_id=manifest.eos_id,
        vocabulary=manifest.vocabulary_size,
        max_source_tokens=manifest.max_source_tokens,
        max_target_tokens=manifest.max_target_tokens,
        aligned=bool(settings.alignments),
        continuing_ids=continuing_ids,
        seconds_bounds=LATENCY_BUCKETS,
        sequence_bounds=SEQUENCE_BUCKETS,
        shortlist=bundle.folder / SHORTLIST_FILE if manifest.shortlist else None,
    )


def _weight(weight: SharedWeight, name: str) -> TensorSpec:
    return TensorSpec(name, ONNX_TYPES[np.dtype(weight.type).name], tuple(weight.shape), weight.offset_bytes)


def _cache(cache: CacheSpec, length: Length, tokens: int) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name, ELEMENT_TYPES[tensor.element], tensor.shape)
        for name, tensor in cache.tensors(length, tokens).items()
    )
