"""Bergamot and Marian as translators: each process runs `peer_worker` in an interpreter that has the library."""

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, get_args

import sentencepiece
import yaml

from benchmarks.harness.process import SystemProcess, run_process
from benchmarks.systems.translating import Batching, SourceSentence, Translator

Peer = Literal["bergamot", "marian"]
PEERS: tuple[Peer, ...] = get_args(Peer)
MODEL_FILES: dict[Peer, str] = {"bergamot": "model.bin", "marian": "model.npz"}
VOCABULARY_FILE, SHORTLIST_FILE = "vocab.spm", "lex.bin"
OPTIONS: dict[Peer, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("peers.yaml").read_text("utf-8"))
WORKER = str(Path(__file__).with_name("peer_worker.py"))
# Target tokens per source token, EOS included, and Bergamot's smallest batch.
LENGTH_FACTOR, LEAST_WORDS = 1.5, 128


@cache
def peer_problem(peer: Peer, python: Path | None) -> str:
    """Returns why an interpreter cannot run a peer; nothing if it can."""
    library, expected = OPTIONS[peer]["library"], OPTIONS[peer]["version"]
    if python is None:
        return f"expected an interpreter that has {library}=={expected}, got null"
    command = [str(python), WORKER, library, "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        return str(error)
    answer = [f"status {done.returncode}", *(done.stdout or done.stderr).strip().splitlines()][-1]
    found = f"{python}: expected {library}=={expected}, got {answer}"
    return "" if done.stdout.strip() == expected else found


class PeerTranslator(Translator):
    """Processes of a peer with equal shares of the sentences and threads; each starts anew for another beam or size.

    A unit such as `examples/2` is that of batches in each of two processes.
    """

    def __init__(self, folder: str, copies: int, threads: int, *, peer: Peer, python: str, precision: str) -> None:
        files = {"model": MODEL_FILES[peer], "vocabulary": VOCABULARY_FILE, "shortlist": SHORTLIST_FILE}
        self._files = {name: Path(folder) / file for name, file in files.items()}
        self._pieces = sentencepiece.SentencePieceProcessor(model_file=str(self._files["vocabulary"]))
        is_wide = precision == "fp32" or "avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
        self._precision = precision if is_wide else f"{precision}_avx2"
        self._options, self._threads = OPTIONS[peer], copies * threads
        self._command = [python, WORKER, self._options["library"]]
        self._stack, self._workers, self._started = ExitStack(), list[SystemProcess](), dict[str, Any]()

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence."""
        return self.translate_parts([sentences], beam_size, batching)

    def translate_parts(
        self, parts: Sequence[Sequence[SourceSentence]], beam_size: int, batching: Batching
    ) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence; the processes get all parts in one request."""
        self._start(max(len(sentence.source_ids) for sentence in parts[0]), beam_size, batching)
        texts = [self._pieces.decode([list(item.source_ids[:-1]) for item in part]) for part in parts]
        count = len(self._workers)
        shares = [{"parts": [part[number::count] for part in texts]} for number in range(count)]
        with ThreadPoolExecutor(count) as pool:
            answers = list(pool.map(SystemProcess.ask, self._workers, shares))
        rows = [row for part in zip(*answers, strict=True) for row in zip_longest(*part)]
        return list(self._pieces.encode([text for row in rows for text in row if text is not None]))

    def _start(self, longest: int, beam_size: int, batching: Batching) -> None:
        unit, _, processes = batching.unit.partition("/")
        count, options = int(processes or 1), self._options
        size = batching.size if unit == "examples" else max(1, batching.size // longest)
        names = ["options", self._precision, *(["greedy"] if beam_size == 1 else [])]
        names += ["shortlist"] if self._files["shortlist"].exists() else []
        sizes = {"beam_size": beam_size, "sentences": size, "words": max(LEAST_WORDS, size * longest)}
        values = {**self._files, **sizes, "length_factor": LENGTH_FACTOR, "workers": self._threads // count}
        started = {"options": "".join(options[name] for name in names).format(**values), "workers": values["workers"]}
        if started != self._started:
            self._stack.close()
            commands = [self._command] * count
            self._workers = [self._stack.enter_context(run_process(options["library"], item)) for item in commands]
            self._started, self.process_ids = started, [worker.process.pid for worker in self._workers]
            for worker in self._workers:
                worker.ask(started)

    def close(self) -> None:
        """Ends the processes."""
        self._stack.close()
