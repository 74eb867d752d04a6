"""The systems that `dragoman bench graphs` compares: our graphs by variant and precision, and CTranslate2.

Knows what each is, which files it needs, how it is started and with which it is compared. Knows no torch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.harness.system_process import Launch
from benchmarks.systems.model_files import ModelFiles
from serve.bundle.manifest import GraphVariant, Precision

SystemName = Literal[
    "cpu-fp32",
    "portable-fp32",
    "ctranslate2-float32",
    "cpu-int8",
    "cpu-int8-static",
    "portable-int8",
    "ctranslate2-int8",
]


@dataclass(frozen=True, slots=True)
class OnnxSystem:
    """A bundle, run by ONNX Runtime.

    Attributes:
        peer: the CTranslate2 of the same precision.
    """

    name: SystemName
    variant: GraphVariant
    precision: Precision
    peer: SystemName

    def write(self, model: ModelFiles, folder: Path) -> None:
        """Has a model write the bundle."""
        model.write_bundle(folder, self.variant, self.precision)

    def launch(self, folder: Path, threads: int, slots: int) -> Launch:
        """Returns how it is started from its folder, for steps of at most `slots` rows on each thread."""
        options = {"folder": str(folder), "threads": threads, "slots": slots}
        return Launch(self.name, "benchmarks.systems.onnx_decoder", options)


@dataclass(frozen=True, slots=True)
class CTranslate2System:
    """A model of CTranslate2, the measure of all others, which is compared with nothing."""

    name: SystemName
    compute_type: str
    peer: None = None

    def write(self, model: ModelFiles, folder: Path) -> None:
        """Has a model write itself in the form of CTranslate2."""
        model.write_ctranslate2(folder, self.compute_type)

    def launch(self, folder: Path, threads: int, slots: int) -> Launch:  # noqa: ARG002 - it allocates what it needs
        """Returns how it is started from its folder."""
        options = {"folder": str(folder), "threads": threads, "compute_type": self.compute_type}
        return Launch(self.name, "benchmarks.systems.ctranslate2_decoder", options)


GraphSystem = OnnxSystem | CTranslate2System

SYSTEMS: dict[SystemName, GraphSystem] = {
    system.name: system
    for system in (
        OnnxSystem("cpu-fp32", "cpu", "fp32", "ctranslate2-float32"),
        OnnxSystem("portable-fp32", "portable", "fp32", "ctranslate2-float32"),
        CTranslate2System("ctranslate2-float32", "float32"),
        OnnxSystem("cpu-int8", "cpu", "int8", "ctranslate2-int8"),
        OnnxSystem("cpu-int8-static", "cpu", "int8-static", "ctranslate2-int8"),
        OnnxSystem("portable-int8", "portable", "int8", "ctranslate2-int8"),
        CTranslate2System("ctranslate2-int8", "int8"),
    )
}
