"""Dragoman's model in Optimum: `generate` of `transformers` over graphs in ONNX Runtime, in static batches.

Optimum has an environment of its own, because its latest version requires `transformers` before 4.58: `make optimum`
creates it and installs Dragoman there with the extra `optimum`. `OptimumEnvironment` is the outside, everything else
the inside. `python -m benchmarks.systems.optimum_system FOLDER` exports the graphs, as users of Optimum do, into the
folder of a checkpoint.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.harness.process import SystemFailedError
from benchmarks.systems.pytorch_system import read_checkpoint
from benchmarks.systems.transformers_system import GenerateTranslator, to_transformers

LIBRARIES = ("optimum-onnx", "transformers", "onnxruntime")
EXPECTED = "expected the interpreter of an environment with the extra `optimum`, as `make optimum` makes one"
# Fails if one of them is not installed.
PRINT_VERSIONS = """
import json, sys
from importlib.metadata import version
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


@dataclass(frozen=True, slots=True)
class OptimumEnvironment:
    """An environment with Optimum, given by its interpreter."""

    python: Path

    def versions(self) -> dict[str, str]:
        """Returns the versions of its libraries.

        Raises:
            SystemFailedError: if the environment does not exist, or lacks a library.
        """
        versions: dict[str, str] = json.loads(self._run("-c", PRINT_VERSIONS, *LIBRARIES))
        return versions

    def export(self, folder: Path) -> None:
        """Exports the model in the folder of a checkpoint into the same folder.

        Raises:
            SystemFailedError: if the exporter fails.
        """
        self._run("-m", "benchmarks.systems.optimum_system", str(folder))

    def _run(self, *arguments: str) -> str:
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command line
                [self.python, *arguments], check=True, capture_output=True, encoding="utf-8", errors="replace"
            )
        except OSError as error:
            raise SystemFailedError(f"optimum: {self.python}: {error.strerror}; {EXPECTED}") from error
        except subprocess.CalledProcessError as error:
            last_line = error.stderr.strip().rpartition("\n")[2]
            raise SystemFailedError(f"optimum: {self.python}: {last_line}; {EXPECTED}") from error
        return done.stdout


def load_optimum(folder: str, copies: int, threads: int) -> GenerateTranslator:
    """Returns one copy of an exported model, with the threads of all copies."""
    from onnxruntime import SessionOptions  # noqa: PLC0415
    from optimum.onnxruntime import ORTModelForSeq2SeqLM  # noqa: PLC0415 - only in its environment

    torch.set_num_threads(copies * threads)
    options = SessionOptions()
    options.intra_op_num_threads = copies * threads
    return GenerateTranslator(ORTModelForSeq2SeqLM.from_pretrained(folder, session_options=options))


def export_checkpoint(folder: Path) -> None:
    """Writes graphs with a KV cache into the folder of a checkpoint."""
    from optimum.exporters.onnx import onnx_export_from_model  # noqa: PLC0415 - only in its environment

    model = to_transformers(read_checkpoint(folder))
    onnx_export_from_model(model, folder, task="text2text-generation-with-past")


if __name__ == "__main__":
    export_checkpoint(Path(sys.argv[1]))
