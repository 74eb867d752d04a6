"""The systems that `dragoman bench offline` compares: our engines, and those that others made.

Knows what each is, which files it needs and how it is started. Knows no torch.
"""

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.harness.system_process import Launch
from benchmarks.systems.compute_type import compute_type
from benchmarks.systems.model_files import ModelFiles
from benchmarks.systems.optimum_environment import OptimumEnvironment
from serve.bundle.manifest import Precision

Maker = Literal["dragoman", "ctranslate2", "pytorch", "transformers", "optimum"]


@dataclass(frozen=True, slots=True)
class OfflineSystem:
    """A system of a precision.

    Attributes:
        maker: what translates.
        precision: what it computes in.
        module: its process.
        write: has a model write the files that it loads into a new folder.
        options: of its translator, beside those that all have.
        python: the interpreter of its process.
    """

    maker: Maker
    precision: Precision
    module: str
    write: Callable[[ModelFiles, Path], None]
    options: Mapping[str, Any] = field(default_factory=dict)
    python: str = sys.executable

    @property
    def name(self) -> str:
        """In messages."""
        return f"{self.maker} {self.precision}"

    @property
    def batched(self) -> bool:
        """Whether it translates static batches; else sequences join and leave its rows."""
        return self.maker != "dragoman"

    def launch(self, folder: Path, sentences: Path, copies: int, threads: int) -> Launch:
        """Returns how it is started.

        Args:
            folder: with its files.
            sentences: the file that `benchmarks.systems.source_sentence` writes.
            copies: what translates side by side.
            threads: of each copy.
        """
        places = {"folder": str(folder), "sentences": str(sentences), "copies": copies, "threads": threads}
        return Launch(f"{self.name}, {copies} x {threads}", self.module, {**places, **self.options}, self.python)


def offline_systems(
    peers: Collection[str], precisions: Collection[Precision], slots: int, optimum: OptimumEnvironment
) -> list[OfflineSystem]:
    """Returns ours and those of the peers in each precision; ours first.

    Args:
        peers: what ours is compared with.
        precisions: of ours; those of the peers are the nearest that they have, if any.
        slots: rows of each of our engines, until a batching tells another number.
        optimum: where Optimum is installed, if it is a peer.
    """
    systems: list[OfflineSystem] = []
    for precision in precisions:
        systems += [_dragoman(precision, slots), _ctranslate2(precision)]
        if precision == "fp32":
            systems += [_with_torch("pytorch"), _with_torch("transformers"), _optimum(optimum)]
    return [system for system in systems if system.maker in ("dragoman", *peers)]


def _dragoman(precision: Precision, slots: int) -> OfflineSystem:
    return OfflineSystem(
        "dragoman",
        precision,
        "benchmarks.systems.engine_translator",
        lambda model, folder: model.write_bundle(folder, "cpu", precision),
        {"slots": slots},
    )


def _ctranslate2(precision: Precision) -> OfflineSystem:
    weights = compute_type(precision)
    return OfflineSystem(
        "ctranslate2",
        precision,
        "benchmarks.systems.ctranslate2_translator",
        lambda model, folder: model.write_ctranslate2(folder, weights),
        {"compute_type": weights},
    )


def _with_torch(peer: Literal["pytorch", "transformers"]) -> OfflineSystem:
    return OfflineSystem(
        peer, "fp32", f"loadtest.peers.{peer}_translator", lambda model, folder: model.write_checkpoint(folder)
    )


def _optimum(environment: OptimumEnvironment) -> OfflineSystem:
    return OfflineSystem(
        "optimum",
        "fp32",
        "benchmarks.systems.optimum_translator",
        environment.write_model,
        python=str(environment.python),
    )
