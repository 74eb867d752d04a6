"""`dragoman bench device`: a bundle on its device compared with PyTorch, and its steps compared with their floor.

The server's engine, stepped in the calling thread, starts a sentence as soon as another one ends. PyTorch gets whole
batches and drops finished rows. Both translate the same sentences to their natural end. The floor of a decoder step is
the time to read every weight of the decoder once.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from benchmarks.systems.translating import LENGTH_PENALTY
from export.graph_decoder import GraphDecoder
from export.inspect.graph import StoredGraph, read_graph
from export.verify.stepper import Reader
from export.verify.sync_engine import SyncEngine
from loadtest.report_files import markdown_table
from model.data.corpus import CorpusError, read_corpus
from model.provenance import Provenance, command_line
from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.bundle import Bundle, BundleError
from serve.runtime.cuda.device import Device
from serve.runtime.cuda.driver import gpus
from serve.runtime.cuda.runtime import DeviceSessions
from serve.runtime.placement import ModelSessions, choose_device, open_sessions
from serve.scheduler.sequence import SequenceSpec
from serve.search.options import SearchOptions
from serve.system import DeviceChoice

# The first steps of a size are planned, or captured as a CUDA graph.
WARM_UP_STEPS = 5
COPIED_BYTES = 1 << 28
COPIES = 5


@dataclass(frozen=True, slots=True)
class StepTime:
    """Medians over steps.

    Attributes:
        decoder_seconds: until the logits are there.
        step_seconds: until the host has the chosen tokens.
    """

    rows: int
    decoder_seconds: float
    step_seconds: float


def time_steps(sessions: ModelSessions, rows: int, source_tokens: int, steps: int) -> StepTime:
    """Returns the time of a decode step; measures fewer steps if the bundle's target limit requires it."""
    manifest, everything = sessions.manifest, np.arange(rows)
    decoder = GraphDecoder(sessions, rows)
    decoder.start([(manifest.eos_id,) * source_tokens] * rows)
    token_ids = np.full(rows, manifest.bos_id)
    decoder_seconds, step_seconds = [], []
    for _ in range(min(steps + WARM_UP_STEPS, manifest.max_target_tokens)):
        started = time.perf_counter()
        scores = decoder.score(token_ids)
        decoder_seconds.append(time.perf_counter() - started)
        token_ids = scores.greedy(everything)
        scores.of(everything, token_ids)
        step_seconds.append(time.perf_counter() - started)
    decoder_median, step_median = (float(np.median(each[WARM_UP_STEPS:])) for each in (decoder_seconds, step_seconds))
    return StepTime(rows, decoder_median, step_median)


def step_weights_bytes(decoder: StoredGraph) -> int:
    """Returns the bytes of the weights that a step reads, without tables of which it gathers only some rows."""
    read = {
        name
        for node in decoder.nodes
        for place, name in enumerate(node.inputs)
        if not (node.operator == "Gather" and place == 0)
    }
    return sum(weight.size_bytes for name, weight in decoder.weights.items() if name in read)


def copy_bandwidth() -> float:
    """Returns the memory bandwidth of a copy, reading plus writing, in bytes per second."""
    source = np.ones(COPIED_BYTES, np.uint8)
    target = np.empty_like(source)
    return _best_bandwidth(lambda: np.copyto(target, source))


def gpu_copy_bandwidth() -> float:
    """Returns the same for the memory of the first GPU."""
    import torch  # noqa: PLC0415 - not needed on a CPU

    source = torch.ones(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        torch.cuda.synchronize()

    return _best_bandwidth(copy)


def _best_bandwidth(copy: Callable[[], object]) -> float:
    copy()
    times = []
    for _ in range(COPIES):
        started = time.perf_counter()
        copy()
        times.append(time.perf_counter() - started)
    return 2 * COPIED_BYTES / min(times)


class Run(NamedTuple):
    """One run over all sentences; targets exclude EOS."""

    seconds: float
    targets: list[tuple[int, ...]]

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second, EOS included."""
        return sum(len(target) + 1 for target in self.targets) / self.seconds


# A measured system: maps sources to target tokens.
Translates = Callable[[Sequence[tuple[int, ...]]], list[tuple[int, ...]]]


def engine_of(sessions: ModelSessions, together: int, beam_size: int) -> Translates:
    """Returns the server's engine, with slots for `together` concurrent translations."""
    engine = SyncEngine(sessions, together * beam_size)
    options = SearchOptions(
        max_target_tokens=sessions.manifest.max_target_tokens, beam_size=beam_size, length_penalty=LENGTH_PENALTY
    )

    def translate(sources: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        specs = [SequenceSpec(source, options) for source in sources]
        return [answer.target_ids for answer in engine.translate(specs, together, lambda _: None)]

    return translate


def pytorch_of(model: object, together: int, beam_size: int) -> Translates:
    """Returns a `TranslationModel`, in evaluation mode, with batches of sentences of similar length."""
    from model.network.translation_model import TranslationModel  # noqa: PLC0415
    from model.search import generate_beam, generate_greedy  # noqa: PLC0415 - needs torch

    assert isinstance(model, TranslationModel)  # noqa: S101 - as documented

    def translate(sources: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        targets: dict[int, tuple[int, ...]] = {}
        order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
        for first in range(0, len(order), together):
            batch = order[first : first + together]
            chosen = [sources[number] for number in batch]
            if beam_size == 1:
                answers = generate_greedy(model, chosen)
            else:
                answers = generate_beam(model, chosen, beam_size, LENGTH_PENALTY)
            targets |= {number: answer.target_ids for number, answer in zip(batch, answers, strict=True)}
        return [targets[number] for number in range(len(sources))]

    return translate


def measure(
    system: Translates, sources: Sequence[tuple[int, ...]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> Run:
    """Returns the fastest of some runs, after an untimed one."""
    system(sources)
    runs = []
    for _ in range(rounds):
        started = clock()
        targets = system(sources)
        runs.append(Run(clock() - started, targets))
    return min(runs, key=lambda run: run.seconds)


LIBRARIES = ("onnxruntime", "onnxruntime-gpu", "torch", "numpy")
# Enough for batches of one row, which are slow.
SENTENCES_PER_ROW = 4


@dataclass(frozen=True, slots=True)
class Result:
    """The results for one number of concurrent translations; PyTorch may be missing."""

    rows: int
    beam_size: int
    sentences: int
    engine: Run
    pytorch: Run | None

    @property
    def identical(self) -> float | None:
        """Share of sentences with identical translations."""
        if self.pytorch is None:
            return None
        pairs = zip(self.engine.targets, self.pytorch.targets, strict=True)
        return sum(engine == pytorch for engine, pytorch in pairs) / self.sentences


class BenchDeviceCommand(BaseSettings):
    """Compares a bundle on its device with PyTorch, and its decoder steps with their floor.

    The floor of a step is the time to read all weights of the decoder once, at the bandwidth of a copy within the
    device's memory. On a CPU, the engine and PyTorch have one thread each.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_BENCH_DEVICE_", frozen=True, extra="forbid", cli_shortcuts={"json-file": "json"}
    )

    bundle: CliPositionalArg[Path] = Field(description="bundle made by `dragoman export`")
    data: str = Field(description="sentences: multi30k:en-de, files:test.en,test.de or tsv:pairs.en-de.tsv")
    split: Literal["train", "validation", "test"] = Field("test", description="part of the data set, if it has parts")
    multi30k_folder: Path | None = Field(None, description="folder of Multi30k; default: $DRAGOMAN_MULTI30K")
    run: Path | None = Field(None, description="training run or fp32 bundle to compare with; default: no PyTorch")
    device: DeviceChoice = Field("auto", description="device; auto follows the variant of the bundle")
    rows: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (1, 32, 128, 512), min_length=1, description="concurrent translations"
    )
    beam_size: int = Field(4, ge=2, description="beam size of the second search, after greedy")
    rounds: int = Field(3, gt=0, description="runs of each measurement; the fastest counts")
    steps: int = Field(50, gt=0, description="decode steps; their median counts")
    json_file: Path | None = Field(None, description="file for all figures")

    def cli_cmd(self) -> None:
        """Measures and prints."""
        try:
            bundle = Bundle.open(self.bundle)
            kind = choose_device(self.device, bundle)
            sources = self._sources(bundle)
            provenance = Provenance.now(
                command_line("bench device", self, positional="bundle"), LIBRARIES, _place(kind)
            )
            results = [self._result(bundle, sources, rows, beam) for beam in (1, self.beam_size) for rows in self.rows]
            steps = {name: self._time(sessions) for name, sessions in self._step_sessions(bundle, kind)}
            bandwidth = gpu_copy_bandwidth() if kind == "cuda" else copy_bandwidth()
            weights_bytes = step_weights_bytes(read_graph(bundle.decoder_path))
        except (BundleError, CorpusError, TokenizerError) as error:
            raise SystemExit(f"dragoman bench device: {error}") from error
        floor = f"floor: {weights_bytes} bytes of the decoder's weights / {bandwidth / 1e9:.0f} GB/s"
        floor += f" = {1e3 * weights_bytes / bandwidth:.3f} ms"
        print(f"{_throughput_table(results)}\n\n{_step_table(steps)}\n\n{floor}\n\n{provenance}")
        figures: dict[str, Any] = {
            "provenance": asdict(provenance),
            "throughput": [_figures(each) for each in results],
            "steps": {name: [asdict(each) for each in times] for name, times in steps.items()},
            "bandwidth_bytes_per_second": bandwidth,
            "weights_bytes": weights_bytes,
        }
        if self.json_file is not None:
            self.json_file.write_text(f"{json.dumps(figures, indent=1)}\n", encoding="utf-8")

    def _sources(self, bundle: Bundle) -> list[tuple[int, ...]]:
        corpus, reader = read_corpus(self.data, self.split, self.multi30k_folder), Reader(bundle)
        read = (reader.source_ids(corpus.languages, text) for text in corpus.sources)
        return [source for source in read if len(source) <= bundle.manifest.max_source_tokens]

    def _result(self, bundle: Bundle, sources: list[tuple[int, ...]], rows: int, beam_size: int) -> Result:
        chosen = list(islice(cycle(sources), SENTENCES_PER_ROW * max(rows, 8)))
        engine = measure(engine_of(open_sessions(bundle, self.device), rows, beam_size), chosen, self.rounds)
        pytorch = None
        if self.run is not None:
            pytorch = measure(pytorch_of(self._trained(self.run, bundle), rows, beam_size), chosen, self.rounds)
        return Result(rows, beam_size, len(chosen), engine, pytorch)

    def _trained(self, run: Path, bundle: Bundle) -> object:
        """Returns the trained model on the bundle's device, in 16 bits if the bundle is."""
        import torch  # noqa: PLC0415 - needed only with --run

        from export.origin import read_origin  # noqa: PLC0415
        from model.run import RunError  # noqa: PLC0415

        try:
            model = read_origin(run)[0].model
        except (CorpusError, RunError) as error:
            raise SystemExit(f"dragoman bench device: {error}") from error
        if bundle.manifest.precision == "fp16":
            model = model.half()
        if bundle.manifest.variant == "cuda" and torch.cuda.is_available():
            return model.to("cuda")
        torch.set_num_threads(1)  # as the sessions of the bundle
        return model

    def _step_sessions(self, bundle: Bundle, kind: str) -> list[tuple[str, Any]]:
        sessions: list[tuple[str, Any]] = [("as served", open_sessions(bundle, self.device))]
        if kind == "cuda":
            sessions.append(("without CUDA graphs", DeviceSessions.load(bundle, Device("cuda"), captured=False)))
        return sessions

    def _time(self, sessions: Any) -> list[StepTime]:
        source_tokens = min(20, sessions.manifest.max_source_tokens)
        return [time_steps(sessions, rows, source_tokens, self.steps) for rows in self.rows]


def _place(kind: str) -> str:
    return kind if kind == "cpu" else f"GPUs: {', '.join(gpu.name for gpu in gpus())}"


def _figures(result: Result) -> dict[str, Any]:
    systems = {"engine": result.engine, "pytorch": result.pytorch}
    return {
        "rows": result.rows,
        "beam_size": result.beam_size,
        "sentences": result.sentences,
        "tokens_per_second": {name: run.tokens_per_second for name, run in systems.items() if run is not None},
        "seconds": {name: run.seconds for name, run in systems.items() if run is not None},
        "identical": result.identical,
    }


def _throughput_table(results: list[Result]) -> str:
    heading = [
        "search",
        "at once",
        "sentences",
        "tokens/s",
        "ms per sentence",
        "PyTorch tokens/s",
        "ratio",
        "identical",
    ]
    return markdown_table(heading, [_throughput_row(each) for each in results])


def _throughput_row(result: Result) -> list[str]:
    engine, pytorch = result.engine, result.pytorch
    search = "greedy" if result.beam_size == 1 else f"beam {result.beam_size}"
    latency = 1e3 * engine.seconds / result.sentences * result.rows
    row = [search, str(result.rows), str(result.sentences), f"{engine.tokens_per_second:,.0f}", f"{latency:.1f}"]
    if pytorch is None:
        return [*row, "-", "-", "-"]
    ratio = engine.tokens_per_second / pytorch.tokens_per_second
    return [*row, f"{pytorch.tokens_per_second:,.0f}", f"{ratio:.2f}", f"{result.identical:.2%}"]


def _step_table(steps: dict[str, list[StepTime]]) -> str:
    rows = [
        [name, str(each.rows), f"{1e3 * each.decoder_seconds:.3f}", f"{1e3 * each.step_seconds:.3f}"]
        for name, times in steps.items()
        for each in times
    ]
    return markdown_table(["steps", "rows", "decoder ms", "with choice of tokens ms"], rows)
