"""`python -m benchmarks.costs.command BUNDLE LINES [BEAM]`: `dragoman translate`, and a script around CTranslate2.

Both are whole processes that take turns, with the same weights in int8 and one engine thread per CPU. The parts of
`dragoman translate` are measured alone. They overlap: a core that waits for no engine tokenizes and writes.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.systems.compared_model import trained_model
from benchmarks.systems.engine import specs_of
from benchmarks.systems.native_engine import BareLoop, settings_of
from benchmarks.systems.translating import SourceSentence
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.tokenizer import load_tokenizer
from dragoman.serve.engine.native.model import open_model
from dragoman.serve.scheduler.sequence import longest_first

ROUNDS = 3
CPUS = len(os.sched_getaffinity(0))
# What a user of both libraries would write.
SCRIPT = """
import sys
import ctranslate2
import sentencepiece

folder, tokenizer, beam_size, threads = sys.argv[1:]
processor = sentencepiece.SentencePieceProcessor(model_file=tokenizer)
translator = ctranslate2.Translator(folder, compute_type="int8", inter_threads=int(threads), intra_threads=1)
pieces = processor.encode(sys.stdin.read().splitlines(), out_type=str)
results = translator.translate_batch(pieces, beam_size=int(beam_size), max_batch_size=2048, batch_type="tokens")
for result in results:
    print(processor.decode(result.hypotheses[0]))
"""
_IMPORTS = "import dragoman.hub.translate_command, dragoman.serve.local.dispatcher"


class Cost(NamedTuple):
    """Seconds of a clock, and of CPU in all threads."""

    seconds: float
    cpu_seconds: float


def process_cost(command: Sequence[str], lines: bytes) -> Cost:
    """Returns the cost of a process that reads lines and may keep compiled modules, as installed ones are.

    Raises CalledProcessError if it fails.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, started_seconds = os.times(), time.perf_counter()
    subprocess.run(command, input=lines, stdout=subprocess.DEVNULL, env=environment, check=True)
    seconds, after = time.perf_counter() - started_seconds, os.times()
    return Cost(seconds, sum(after[2:4]) - sum(before[2:4]))


def parts(folder: Path, lines: Sequence[str], beam_size: int) -> tuple[Cost, Cost]:
    """Returns the cost of the tokenizer alone, and of the engines alone."""
    bundle = Bundle.open(folder)
    tokenizer, manifest = load_tokenizer(bundle), bundle.manifest
    limit, suffix = manifest.max_target_tokens, tuple(manifest.source_suffix)
    loop = BareLoop(bundle, settings_of(bundle, engines=CPUS, slots=32), open_model(bundle, 1))
    times = [(time.perf_counter(), time.process_time())]
    specs = specs_of([SourceSentence((*tokenizer.encode(line), *suffix), 0, limit) for line in lines], beam_size)
    times.append((time.perf_counter(), time.process_time()))
    ended = loop.translate(specs, longest_first)
    times.append((time.perf_counter(), time.process_time()))
    for sequence in ended:
        tokenizer.decode(sequence.best.target_ids)
    times.append((time.perf_counter(), time.process_time()))
    loop.close()
    encode, engine, decode = (Cost(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(times))
    return Cost(encode.seconds + decode.seconds, encode.cpu_seconds + decode.cpu_seconds), engine


def measure(folder: Path, lines: bytes, beam_size: int) -> None:
    """Prints the medians of both processes and of the parts, and the ratio."""
    ours = [sys.executable, "-m", "dragoman", "translate", "--bundle", str(folder), "--beam-size", str(beam_size)]
    costs = dict[str, list[Cost]]()
    with tempfile.TemporaryDirectory() as temporary:
        theirs = Path(temporary) / "model"
        trained_model(folder).write(theirs, "ctranslate2", "int8")
        arguments = [str(theirs), str(folder / "tokenizer.model"), str(beam_size), str(CPUS)]
        for _ in range(ROUNDS):
            tokenizer, engine = parts(folder, lines.decode().splitlines(), beam_size)
            for name, cost in {
                "dragoman translate": process_cost(ours, lines),
                "CTranslate2": process_cost([sys.executable, "-c", SCRIPT, *arguments], lines),
                "  start": process_cost([sys.executable, "-c", _IMPORTS], b""),
                "  start, load, end": process_cost(ours, b""),
                "  tokenizer": tokenizer,
                "  engines": engine,
            }.items():
                costs.setdefault(name, []).append(cost)
    print(f"{'':<20} seconds  CPU seconds")
    for name, found in costs.items():
        seconds, cpu_seconds = map(statistics.median, zip(*found, strict=True))
        print(f"{name:<20} {seconds:7.2f} {cpu_seconds:12.2f}")
    for what, column in (("time", 0), ("CPU time", 1)):
        pairs = zip(costs["CTranslate2"], costs["dragoman translate"], strict=True)
        ratios = sorted(theirs[column] / ours[column] for theirs, ours in pairs)
        print(f"{what} of CTranslate2 over ours: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    measure(Path(sys.argv[1]), Path(sys.argv[2]).read_bytes(), int(sys.argv[3]) if len(sys.argv) > 3 else 1)  # noqa: PLR2004
