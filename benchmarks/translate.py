"""`dragoman translate` of a file, and a script around CTranslate2 and SentencePiece: whole processes in turns.

Both have the same weights in int8 and a thread per CPU, and read the same lines from standard input.
"""

import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import Field

from benchmarks.harness.plan import BenchmarkPlan
from benchmarks.harness.report import Figures, Report, Table
from benchmarks.harness.rounds import measure_rounds
from benchmarks.systems.compared_model import trained_model
from dragoman.model.data.corpus import read_corpus
from dragoman.model.errors import CorpusError
from dragoman.serve.host.system import available_cpus

# What a user of both libraries would write.
SCRIPT = """
import sys
import ctranslate2
import sentencepiece

folder, tokenizer, beam_size, longest, threads = sys.argv[1:]
processor = sentencepiece.SentencePieceProcessor(model_file=tokenizer)
translator = ctranslate2.Translator(folder, compute_type="int8", inter_threads=int(threads), intra_threads=1)
pieces = processor.encode(sys.stdin.read().splitlines(), out_type=str)
options = {"beam_size": int(beam_size), "max_decoding_length": int(longest)}
results = translator.translate_batch(pieces, max_batch_size=2048, batch_type="tokens", **options)
for result in results:
    print(processor.decode(result.hypotheses[0]))
"""


class TranslatePlan(BenchmarkPlan):
    """The bundle and the lines."""

    libraries = ("onnxruntime", "ctranslate2", "sentencepiece")

    rounds: int = Field(3, ge=1, description="how often each program runs")
    bundle: Path = Field(description="bundle of one direction in int8, made from a run")
    data: str = Field("multi30k:en-de", description="training data as in `dragoman train`")
    lines: int = Field(20_000, ge=1, description="distinct sources to translate")
    beam_size: int = Field(1, ge=1, description="hypotheses of the beam search")

    def measure(self) -> Report:
        """Measures both programs; raises CorpusError if the data has fewer lines."""
        import_module("ctranslate2")
        lines = list(dict.fromkeys(read_corpus(self.data, "train").sources))[: self.lines]
        if len(lines) < self.lines:
            raise CorpusError(f"lines: {self.lines}: expected at most {len(lines)}, as the data has")
        threads, beam_size = available_cpus(), str(self.beam_size)
        with TemporaryDirectory(prefix="dragoman-") as temporary:
            folder = Path(temporary) / "model"
            model = trained_model(self.bundle)
            model.write(folder, "ctranslate2", "int8")
            numbers = [beam_size, str(model.model.config.max_target_tokens), str(threads)]
            arguments = [str(folder), str(self.bundle / "tokenizer.model"), *numbers]
            ours = ["-m", "dragoman", "translate", "--bundle", str(self.bundle), "--beam-size", beam_size]
            programs = {"dragoman translate": ours, "script of CTranslate2": ["-c", SCRIPT, *arguments]}
            text = "\n".join([*lines, ""]).encode()
            found = measure_rounds(programs, self.rounds, "translate", lambda name: cost(programs[name], text))
        name = f"{self.bundle.name}, {self.lines:,} lines, beam {self.beam_size}"
        return Report([Table(name, found, "dragoman translate", SECONDS)], f"threads of each program: {threads}")


SECONDS = ("seconds", "CPU seconds")


def cost(arguments: list[str], text: bytes) -> Figures:
    """Returns the seconds of a Python process that reads a text; raises CalledProcessError if it fails."""
    before, started_seconds = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], input=text, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - both programs of the plan
    seconds, after = time.perf_counter() - started_seconds, os.times()
    return dict(zip(SECONDS, (seconds, sum(after[2:4]) - sum(before[2:4])), strict=True))
