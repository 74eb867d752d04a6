"""Tests that need a GPU; skipped where ONNX Runtime finds none. `tests/gpu/run.sh` runs them with the benchmarks.

The model is untrained, in 16 bits, with a head size that CUDA's fast kernels support.
"""

from copy import deepcopy

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dragoman.export.make_bundle import BundleOptions
from dragoman.model.network.transformer import Transformer
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.registry.engine_models import load_on_gpus
from dragoman.serve.runtime.device import DeviceGraphs, DeviceRuntime
from dragoman.serve.runtime.driver import why_no_cuda
from dragoman.serve.settings import ServeSettings
from tests.support.served import serve
from tests.support.toy import export_model, random_model

NO_CUDA = why_no_cuda()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(NO_CUDA is not None, reason=f"no GPU: {NO_CUDA}")]

LENGTHS = [5, 40, 1, 17, 33, 8, 12]
STEPS = 12
# PyTorch's own error in 16 bits, times this.
MARGIN = 2.0


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Transformer:
    limits = {"max_source_tokens": 40, "max_target_tokens": 24}
    return random_model(8, tokenizer.vocabulary_size, d_model=128, heads=2, **limits)


@pytest.fixture(scope="module")
def bundle(model: Transformer, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    options = BundleOptions("random", "cuda", "fp16")
    return export_model(model, tokenizer, tmp_path_factory.mktemp("gpu") / "cuda", options=options)


@pytest.fixture(scope="module")
def runtime(bundle: Bundle) -> DeviceRuntime:
    return DeviceGraphs(bundle, 1).runtime(8)


def drawn(vocabulary: int) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Returns sources, their lengths, and target tokens, int64 [STEPS, R]."""
    random = np.random.default_rng(3)
    ids = np.full((len(LENGTHS), max(LENGTHS)), PAD_ID, np.int64)
    for row, length in zip(ids, LENGTHS, strict=True):
        row[: length - 1] = random.integers(4, vocabulary, length - 1)
        row[length - 1] = EOS_ID
    targets = random.integers(4, vocabulary, (STEPS, len(LENGTHS)))
    targets[0] = BOS_ID
    return ids, np.array(LENGTHS, np.int32), targets


def decode(runtime: DeviceRuntime, chosen: list[int]) -> NDArray[np.float32]:
    """Returns the logits of some of the drawn sequences, float32 [STEPS, M, V]."""
    ids, lengths, targets = drawn(runtime._vocabulary_size)
    sequences, rows = np.array(chosen), np.arange(len(chosen))
    runtime.encode(ids[sequences], lengths[sequences], [[row] for row in rows.tolist()])
    logits = []
    for position in range(STEPS):
        positions = np.full(len(rows), position, np.int32)
        arguments = rows, targets[position][sequences], positions, lengths[sequences]
        logits.append(runtime.step(*arguments, scored_rows=rows).fetch(rows))
    return np.array(logits)


def pytorch_logits(model: Transformer, dtype: torch.dtype) -> NDArray[np.float32]:
    """Returns PyTorch's logits of the drawn sequences on the GPU, computed one by one, float32 [STEPS, M, V]."""
    ids, lengths, targets = drawn(model.vocabulary_size)
    model = deepcopy(model).to("cuda", dtype).eval()
    of_sequences = []
    for row, length in enumerate(lengths.tolist()):
        state = model.start(model.encode(torch.from_numpy(ids[row : row + 1, :length]).cuda()))
        logits = []
        for tokens in targets[:, row : row + 1]:
            expected, state = model.decode_step(torch.from_numpy(tokens).cuda(), state)
            logits.append(expected[0].float().cpu().numpy())
        of_sequences.append(logits)
    return np.array(of_sequences).swapaxes(0, 1)


@torch.inference_mode()
def test_logits_are_as_near_to_32_bits_as_those_of_pytorch_in_16_bits(
    model: Transformer, runtime: DeviceRuntime
) -> None:
    logits = decode(runtime, list(range(len(LENGTHS))))
    exact, rounded = pytorch_logits(model, torch.float32), pytorch_logits(model, torch.float16)
    assert np.abs(logits - exact).max() < MARGIN * np.abs(rounded - exact).max()


def test_a_replayed_cuda_graph_computes_what_its_kernels_compute(bundle: Bundle) -> None:
    everything = list(range(len(LENGTHS)))
    captured, plain = (DeviceGraphs(bundle, 1, captured=value).runtime(8) for value in (True, False))
    captured.model.prepare()
    assert decode(captured, everything).tobytes() == decode(plain, everything).tobytes()


def test_other_rows_in_the_same_bucket_change_nothing(runtime: DeviceRuntime) -> None:
    """Five to seven rows run as eight. `dragoman verify --checks invariance` measures differences between buckets."""
    expected = decode(runtime, list(range(len(LENGTHS))))
    for rows in (5, 6):
        assert decode(runtime, list(range(rows))).tobytes() == expected[:, :rows].tobytes()


def test_former_content_of_memory_changes_nothing(runtime: DeviceRuntime) -> None:
    """NaN behind the valid length of a row, and in its neighbors, must not pass through a product with zero."""
    expected = decode(runtime, [0, 2])
    runtime.model.fill(0xFF)
    assert decode(runtime, [0, 2]).tobytes() == expected.tobytes()


def test_too_little_memory_is_an_error_that_names_the_setting(bundle: Bundle) -> None:
    settings = ServeSettings(
        bundle=bundle.folder, device="cuda", engines=1, slots=1 << 20, device_memory_bytes=64 << 20
    )
    with pytest.raises(BundleError, match=r"^--slots: 1048576: out of device memory"):
        load_on_gpus(settings, bundle)


def test_a_server_on_a_gpu_becomes_ready_and_exposes_its_memory(bundle: Bundle) -> None:
    with serve(bundle.folder, "--device", "cuda", "--slots", "8") as server:
        assert server.ready["devices"] == ["cuda"]
        assert 0 < server.metric("gpu_memory_used_bytes") < server.metric("gpu_memory_total_bytes")
