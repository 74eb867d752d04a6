"""The device that computes a bundle, and the one-line error if none can.

No test here needs a GPU. A fake replaces the driver's library; ONNX Runtime and the dynamic loader are real.
"""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import GraphVariant
from dragoman.serve.host.system import DeviceChoice
from dragoman.serve.runtime import driver as cuda
from dragoman.serve.runtime import onnx_runtime, placement
from dragoman.serve.runtime.driver import Gpu, GpuCollector, GpuError
from dragoman.serve.runtime.placement import DeviceError, choose_device, place, plan_memory
from tests.support.paths import ROOT

CUDA_13 = "13.0"
KINDS = ("total", "used")


@dataclass
class FakeNvml:
    """A fake of NVML with the functions that the code calls."""

    memories: list[int] = field(default_factory=lambda: [8 << 30])
    cuda: int = 13000
    problem: str | None = None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Replaces the real library."""
        module = ModuleType("pynvml")
        error = type("NVMLError", (Exception,), {})

        def init() -> None:
            if self.problem is not None:
                raise error(self.problem)

        def handle(number: int) -> int:
            if number >= len(self.memories):
                raise error("Invalid Argument")
            return number

        functions = {
            "NVMLError": error,
            "nvmlInit": init,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: len(self.memories),
            "nvmlDeviceGetHandleByIndex": handle,
            "nvmlDeviceGetHandleByUUID": lambda _: 0,
            "nvmlDeviceGetName": lambda number: f"GPU {number}",
            "nvmlDeviceGetMemoryInfo": lambda n: SimpleNamespace(total=self.memories[n], free=self.memories[n] // 2),
            "nvmlSystemGetCudaDriverVersion_v2": lambda: self.cuda,
        }
        vars(module).update(functions)
        patch.setitem(sys.modules, "pynvml", module)


@pytest.fixture(autouse=True)
def _no_hidden_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cuda.VISIBLE, raising=False)


@pytest.fixture
def built_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretends that the installed package is the one for GPUs."""
    monkeypatch.setattr(onnx_runtime, "has_cuda", lambda: True)
    monkeypatch.setattr(onnx_runtime, "cuda_version", lambda: CUDA_13)


def of_variant(bundle: Bundle, variant: GraphVariant) -> Bundle:
    return Bundle(bundle.folder, bundle.manifest.model_copy(update={"variant": variant}), bundle.golden)


@pytest.mark.parametrize("choice", ["auto", "cpu"])
def test_a_cpu_bundle_runs_on_the_cpu(choice: DeviceChoice, wide_bundle: Bundle) -> None:
    assert choose_device(choice, wide_bundle) == "cpu"


@pytest.mark.parametrize(("choice", "variant"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_device_rejects_bundles_of_others(choice: DeviceChoice, variant: GraphVariant, states_bundle: Bundle) -> None:
    with pytest.raises(DeviceError, match=f"^--device: {choice}: expected {variant} "):
        choose_device(choice, of_variant(states_bundle, variant))


@pytest.mark.parametrize("choice", ["auto", "cuda"])
def test_a_missing_gpu_is_an_error_of_one_line_with_the_cause(
    choice: DeviceChoice, states_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "why_no_cuda", lambda: "the cause")
    with pytest.raises(DeviceError, match=rf"^--device: {choice}: .*: the cause$") as caught:
        choose_device(choice, of_variant(states_bundle, "cuda"))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(onnx_runtime.has_cuda(), reason="the package for GPUs is installed")
def test_the_package_for_cpus_is_the_cause() -> None:
    assert f"onnxruntime {onnx_runtime.VERSION} is built for CPUs" in (cuda.why_no_cuda() or "")


@pytest.mark.usefixtures("built_for_cuda")
@pytest.mark.parametrize(
    ("driver", "cause"),
    [
        (FakeNvml(problem="NVML Shared Library Not Found"), "NVML Shared Library Not Found"),
        (FakeNvml(memories=[]), "no GPU"),
        (FakeNvml(cuda=12080), "CUDA 12.8"),
    ],
    ids=["no driver", "no GPU", "wrong CUDA"],
)
def test_driver_problems_are_named(driver: FakeNvml, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.install(monkeypatch)
    assert cause in (cuda.why_no_cuda() or "")


@pytest.mark.usefixtures("built_for_cuda")
def test_hidden_gpus_are_reported_with_the_variable_that_hides_them(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeNvml().install(monkeypatch)
    monkeypatch.setenv(cuda.VISIBLE, "")
    assert cuda.VISIBLE in (cuda.why_no_cuda() or "")


@pytest.mark.usefixtures("built_for_cuda")
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dynamic loader is real; the path of the library does not exist."""
    FakeNvml().install(monkeypatch)
    monkeypatch.setattr(onnx_runtime, "load_cuda_libraries", lambda: None)
    monkeypatch.setattr(onnx_runtime, "cuda_libraries", lambda: [Path("/nowhere/libonnxruntime_providers_cuda.so")])
    assert "libonnxruntime_providers_cuda.so" in (cuda.why_no_cuda() or "")


@pytest.mark.skipif(not onnx_runtime.has_cuda(), reason="the package for CPUs is installed")
def test_the_package_for_gpus_loads_or_names_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeNvml().install(monkeypatch)
    problem = cuda.why_no_cuda()
    assert problem is None or re.match(r"lib[^ ]+\.so[^ ]*: cannot open shared object file: .*CUDA 13", problem)


def test_a_missing_nvml_package_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(GpuError, match="nvidia-ml-py"):
        cuda.gpus()


def test_gpus_have_the_order_and_selection_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeNvml([10, 20, 30]).install(monkeypatch)
    assert cuda.gpus() == [Gpu("GPU 0", 10, 5), Gpu("GPU 1", 20, 10), Gpu("GPU 2", 30, 15)]
    monkeypatch.setenv(cuda.VISIBLE, "2, 0")
    assert [gpu.name for gpu in cuda.gpus()] == ["GPU 2", "GPU 0"]
    monkeypatch.setenv(cuda.VISIBLE, "GPU-8f1c")
    assert [gpu.name for gpu in cuda.gpus()] == ["GPU 0"]
    monkeypatch.setenv(cuda.VISIBLE, "7")
    with pytest.raises(GpuError):
        cuda.gpus()


def test_the_memory_of_gpus_is_a_metric_while_the_driver_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    registry.register(GpuCollector())
    FakeNvml([10, 20]).install(monkeypatch)
    values = {kind: registry.get_sample_value(f"dragoman_gpu_memory_{kind}_bytes", {"gpu": "1"}) for kind in KINDS}
    assert values == {"total": 20, "used": 10}
    FakeNvml(problem="GPU is lost").install(monkeypatch)
    assert not list(registry.collect())


def on_gpus(monkeypatch: pytest.MonkeyPatch, *free_bytes: int) -> None:
    monkeypatch.setattr(placement, "why_no_cuda", lambda: None)
    monkeypatch.setattr(placement, "gpus", lambda: [Gpu("fake", 2 * free, free) for free in free_bytes])


def test_each_gpu_gets_an_engine_and_given_ones_share(states_bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpus(monkeypatch, 8 << 30, 8 << 30)
    bundle = of_variant(states_bundle, "cuda")
    placed = place("auto", bundle, engines=None, slots=64, memory_bytes=None)
    assert (placed.kind, placed.engines, placed.slots) == ("cuda", 2, 64)
    plan = plan_memory(bundle, 64, 8 << 30)
    memory_bytes = 2 * plan.total_bytes + plan.fixed_bytes
    placed = place("cuda", bundle, engines=3, slots=64, memory_bytes=memory_bytes)
    assert (placed.engines, placed.slots) == (3, 64)
    assert place("cuda", bundle, engines=5, slots=64, memory_bytes=memory_bytes).slots < 64


def test_the_slots_fit_into_memory(states_bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = of_variant(states_bundle, "cuda")
    plan = plan_memory(bundle, 64, 8 << 30)
    on_gpus(monkeypatch, 8 << 30)
    bound = plan.fixed_bytes + 10 * plan.slot_bytes
    assert place("cuda", bundle, engines=None, slots=64, memory_bytes=bound).slots == 10
    on_gpus(monkeypatch, int(bound / placement.USED_SHARE) + 1)
    assert place("cuda", bundle, engines=None, slots=64, memory_bytes=None).slots == 10


def test_no_room_for_a_slot_is_an_error_with_the_bytes(states_bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpus(monkeypatch, 8 << 30)
    with pytest.raises(DeviceError, match=r"^--device: cuda: .* \d+ bytes"):
        place("cuda", of_variant(states_bundle, "cuda"), engines=None, slots=4, memory_bytes=1000)


def test_the_command_prints_the_error_in_one_line(states_bundle: Bundle) -> None:
    ports = ["--http-port", "0", "--grpc-port", "0"]
    command = [sys.executable, "-m", "dragoman", "serve", str(states_bundle.folder), "--device", "cuda", *ports]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("dragoman serve: --device: cuda: ")
