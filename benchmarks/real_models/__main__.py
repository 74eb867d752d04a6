"""Proves that public models work: one of each kind, by name.

Downloads, converts and serves each model, translates 50 sentences, and compares it with a bound of chrF and with its
own engine, if that is installed. Prints a table, and what to report. An interrupted run continues.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.real_models.plan import MODELS, read_models, read_sentences
from benchmarks.real_models.proof import COLUMNS, PASSED, Row, prove
from benchmarks.real_models.work import Work
from dragoman.hub.store import VARIABLE
from dragoman.model.errors import INTERRUPTED
from dragoman.model.provenance import Provenance
from dragoman.model.text_table import format_table

LIMIT_SECONDS, LIMIT_BYTES = 20 * 60.0, 1e9
ALL_SECONDS = 24 * 3600.0
LIBRARIES = ("dragoman", "onnxruntime", "ctranslate2", "transformers", "torch", "sacrebleu")
REPORT = "Please report these lines if a model failed, and the chrF of all models: the bounds are estimates."


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table; exits with 1 if a model failed."""
    parser = argparse.ArgumentParser(prog="make real-models", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="also large models, without limits of 20 minutes and 1 GB")
    parser.add_argument("--folder", type=Path, default=Path("build/real-models"), help="for downloads and bundles")
    parser.add_argument("--models", type=Path, default=MODELS, help="file of models")
    options = parser.parse_args(arguments)
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[VARIABLE] = str(folder / "cache")
    seconds, size_bytes = (ALL_SECONDS, math.inf) if options.all else (LIMIT_SECONDS, LIMIT_BYTES)
    work = Work(folder, time.monotonic() + seconds, size_bytes)
    sentences, rows = read_sentences(), list[Row]()
    try:
        for model in read_models(options.models):
            if options.all or not model.large:
                print(f"{model.name}: {model.kind}", file=sys.stderr)
                rows.append(prove(model, sentences, work))
    except KeyboardInterrupt:
        print("real-models: interrupted: the same command continues", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    _show(rows)


def _show(rows: Sequence[Row]) -> None:
    print(format_table([COLUMNS, *(row.cells() for row in rows)], len(COLUMNS)))
    print(*(f"{row.model.name}: {row.origin}" for row in rows if row.origin), sep="\n")
    print(Provenance.now("make real-models", LIBRARIES, "one process per step"))
    print(REPORT)
    failed = sum(row.result != PASSED for row in rows)
    if failed:
        raise SystemExit(f"real-models: {failed} of {len(rows)} failed")


if __name__ == "__main__":
    main()
