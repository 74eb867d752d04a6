"""The environment of its own that Optimum needs: its latest version wants a `transformers` before 4.58.

All else here is tested with a later one. `make optimum` makes the environment; Dragoman is installed there with the
extra `optimum`. Called by `dragoman bench offline`.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.process import SystemFailedError
from benchmarks.systems.compared_model import ModelFiles

LIBRARIES = ("optimum-onnx", "transformers", "onnxruntime")
EXPECTED = "expected the interpreter of an environment with the extra `optimum`, as `make optimum` makes one"
# Fails where one of them is not installed.
PRINT_VERSIONS = """
import json, sys
from importlib.metadata import version
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


@dataclass(frozen=True, slots=True)
class OptimumEnvironment:
    """An environment with Optimum, by its interpreter."""

    python: Path

    def versions(self) -> dict[str, str]:
        """Returns the versions of what computes there.

        Raises:
            SystemFailedError: if there is no such environment, or it lacks one of them.
        """
        versions: dict[str, str] = json.loads(self._run("-c", PRINT_VERSIONS, *LIBRARIES))
        return versions

    def write_model(self, model: ModelFiles, folder: Path) -> None:
        """Writes a model of Optimum into a new folder.

        Raises:
            SystemFailedError: if its exporter fails.
        """
        model.write_checkpoint(folder)
        self._run("-m", "benchmarks.systems.optimum_model", str(folder))

    def _run(self, *arguments: str) -> str:
        try:
            done = subprocess.run(  # noqa: S603 - our own command line
                [self.python, *arguments], check=True, capture_output=True, encoding="utf-8", errors="replace"
            )
        except OSError as error:
            raise SystemFailedError(f"optimum: {self.python}: {error.strerror}; {EXPECTED}") from error
        except subprocess.CalledProcessError as error:
            last_line = error.stderr.strip().rpartition("\n")[2]
            raise SystemFailedError(f"optimum: {self.python}: {last_line}; {EXPECTED}") from error
        return done.stdout
