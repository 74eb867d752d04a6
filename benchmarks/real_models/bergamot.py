"""The translator of Firefox, compiled to WebAssembly: `make clients` installs it, and Node runs it."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness.errors import BenchmarkError

TRANSLATOR = Path(__file__).parents[2] / ".clients" / "node_modules" / "@browsermt" / "bergamot-translator" / "worker"
NODE = shutil.which("node")
SCRIPT = Path(__file__).with_name("bergamot.js")
TIMEOUT_SECONDS = 300.0
# 8 bits, with the scales of activations that a file holds, as those of Firefox do; else with one scale of each product.
FIXED_SCALES, OWN_SCALES = "int8shiftAlphaAll", "int8shiftAll"
SCALE_NAME = b"_QuantMultA"


def is_installed() -> bool:
    """Returns whether the translator and Node are on this machine."""
    return NODE is not None and TRANSLATOR.is_dir()


def translate_by_firefox(
    model: Path, vocabularies: Sequence[Path], texts: Sequence[str], precision: str | None = None
) -> list[str]:
    """Returns greedy translations, each of at most twice the tokens of its source.

    Raises BenchmarkError if the translator fails, TimeoutExpired if it takes too long. `vocabularies` are SentencePiece
    models, one for both sides or one for each. `precision` is a name of the translator; None: 8 bits.
    """
    if precision is None:
        precision = FIXED_SCALES if SCALE_NAME in model.read_bytes() else OWN_SCALES
    files = {"model": str(model), "vocabularies": [str(path) for path in vocabularies]}
    with TemporaryDirectory(prefix="dragoman-") as folder:
        shutil.copytree(TRANSLATOR, Path(folder) / "worker")
        shutil.copy(SCRIPT, Path(folder) / "script.js")
        done = subprocess.run(  # noqa: S603 - our own command line
            [NODE or "node", "script.js"],
            cwd=folder,
            input=json.dumps({"texts": texts, "precision": precision, **files}),
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    if done.returncode != 0:
        raise BenchmarkError(f"bergamot: {' '.join((done.stdout + done.stderr).split())[:200]}")
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found
