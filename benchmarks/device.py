"""`dragoman bench device`: a bundle on its device, beside PyTorch in the same run, and its steps beside their floor.

Composes the other modules: reads sentences, runs both systems for each number of rows, and prints tables.

The time of a decoder step beside the least that it could take: reading every weight of the decoder once.

Steps are run for their own sake, on rows of one made-up source. Knows neither engine nor texts.

The same sentences translated by the service's engine and by PyTorch, so many at once: tokens and seconds.

The engine is that of the server, stepped in the calling thread, and starts a sentence as soon as another has ended;
PyTorch gets whole batches, and lets go of rows that have ended. Both search to the natural end of each translation.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

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
from serve.runtime.device_choice import DeviceChoice
from serve.runtime.placement import ModelSessions, choose_device, open_sessions
from serve.scheduler.sequence import SequenceSpec
from serve.search.options import SearchOptions

# The first steps of a size are planned, or captured as a CUDA graph.
WARM_UP_STEPS = 5
COPIED_BYTES = 1 << 28
COPIES = 5


@dataclass(frozen=True, slots=True)
class StepTime:
    """Medians over steps, in seconds.

    Attributes:
        rows: of each step.
        decoder_seconds: the decoder alone, until its logits are there.
        step_seconds: with the choice of the tokens, which the host gets.
    """

    rows: int
    decoder_seconds: float
    step_seconds: float


def time_steps(sessions: ModelSessions, rows: int, source_tokens: int, steps: int) -> StepTime:
    """Returns the time of a step of so many rows.

    Args:
        sessions: of the bundle.
        rows: of each step.
        source_tokens: of every row's source.
        steps: that are measured; at most the target tokens that the bundle takes, less those that warm up.
    """
    manifest, everything = sessions.manifest, np.arange(rows)
    model = sessions.runtime(rows)
    lengths = np.full(rows, source_tokens, np.int32)
    model.encode(np.full((rows, source_tokens), manifest.eos_id), lengths, everything)
    token_ids = np.full(rows, manifest.bos_id)
    decoders, totals = [], []
    for position in range(min(steps + WARM_UP_STEPS, manifest.max_target_tokens)):
        started = time.perf_counter()
        scores = model.step(token_ids, np.full(rows, position, np.int32), lengths)
        decoders.append(time.perf_counter() - started)
        token_ids = scores.greedy(everything)
        scores.of(everything, token_ids)
        totals.append(time.perf_counter() - started)
    decoder, total = (float(np.median(times[WARM_UP_STEPS:])) for times in (decoders, totals))
    return StepTime(rows, decoder, total)


def step_weights_bytes(decoder: StoredGraph) -> int:
    """Returns the bytes of the weights that a step reads; of a table it gathers only the rows that it needs."""
    read = {
        name
        for node in decoder.nodes
        for place, name in enumerate(node.inputs)
        if not (node.operator == "Gather" and place == 0)
    }
    return sum(weight.size_bytes for name, weight in decoder.weights.items() if name in read)


def copy_bandwidth() -> float:
    """Returns the bytes per second that this machine's memory is read with, measured by copying, which also writes."""
    source = np.ones(COPIED_BYTES, np.uint8)
    target = np.empty_like(source)
    return _best_bandwidth(lambda: np.copyto(target, source))


def gpu_copy_bandwidth() -> float:
    """Returns the same for the first GPU's memory."""
    import torch  # noqa: PLC0415 - who measures a CPU needs none

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


LENGTH_PENALTY = 1.0


class Run(NamedTuple):
    """One run over all sentences.

    Attributes:
        seconds: it took.
        targets: target tokens of each sentence, the end token excluded.
    """

    seconds: float
    targets: list[tuple[int, ...]]

    @property
    def tokens_per_second(self) -> float:
        """Target tokens, end tokens included."""
        return sum(len(target) + 1 for target in self.targets) / self.seconds


class Translates(Protocol):
    """A system that is measured."""

    def __call__(self, sources: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Returns the target tokens of each source."""


def engine_of(sessions: ModelSessions, together: int, beam_size: int) -> Translates:
    """Returns the service's engine with slots for so many translations at once."""
    engine = SyncEngine(sessions, together * beam_size)
    options = SearchOptions(
        max_target_tokens=sessions.manifest.max_target_tokens, beam_size=beam_size, length_penalty=LENGTH_PENALTY
    )

    def translate(sources: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        specs = [SequenceSpec(source, options) for source in sources]
        return [answer.target_ids for answer in engine.translate(specs, together, lambda _: None)]

    return translate


def pytorch_of(model: object, together: int, beam_size: int) -> Translates:
    """Returns the trained model, in batches of so many sentences of about one length.

    Args:
        model: a `model.network.translation_model.TranslationModel`, in evaluation mode, where and in what it computes.
        together: sentences of a batch.
        beam_size: 1 is greedy search.
    """
    from model.network.translation_model import TranslationModel  # noqa: PLC0415
    from model.search import generate_beam, generate_greedy  # noqa: PLC0415 - who has no run has no torch

    assert isinstance(model, TranslationModel)  # noqa: S101 - named so above

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
    """Returns the fastest of some runs, after one that is not counted."""
    system(sources)
    runs = []
    for _ in range(rounds):
        started = clock()
        targets = system(sources)
        runs.append(Run(clock() - started, targets))
    return min(runs, key=lambda run: run.seconds)


LIBRARIES = ("onnxruntime", "onnxruntime-gpu", "torch", "numpy")
# What a batch of one row is enough with: it is slow, and every sentence is measured for itself.
SENTENCES_PER_ROW = 4


@dataclass(frozen=True, slots=True)
class Result:
    """What so many translations at once came to.

    Attributes:
        rows: translations at once.
        beam_size: of the search.
        sentences: translated in each run.
        engine: the service's engine.
        pytorch: the trained model; None: not measured.
    """

    rows: int
    beam_size: int
    sentences: int
    engine: Run
    pytorch: Run | None

    @property
    def identical(self) -> float | None:
        """Share of the sentences that both translate alike."""
        if self.pytorch is None:
            return None
        pairs = zip(self.engine.targets, self.pytorch.targets, strict=True)
        return sum(ours == theirs for ours, theirs in pairs) / self.sentences


class BenchDeviceCommand(BaseSettings):
    """Measures a bundle where it is served: tokens per second and latency beside PyTorch, and steps beside their floor.

    The floor of a step is the time that it takes to read all weights of the decoder once, with the bandwidth that
    copying within the device's memory reaches. On a CPU the engine and PyTorch have one thread each.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_BENCH_DEVICE_", frozen=True, extra="forbid", cli_shortcuts={"json-file": "json"}
    )

    bundle: CliPositionalArg[Path] = Field(description="folder made by `dragoman export`")
    data: str = Field(description="sentences: multi30k:en-de, files:test.en,test.de or tsv:pairs.en-de.tsv")
    split: Literal["train", "validation", "test"] = Field("test", description="part of a data set that has parts")
    multi30k_folder: Path | None = Field(None, description="where Multi30k is; default: $DRAGOMAN_MULTI30K")
    run: Path | None = Field(
        None, description="training run, or bundle in fp32, behind the bundle; without it, PyTorch is left out"
    )
    device: DeviceChoice = Field("auto", description="where it is computed; auto: as the bundle's variant says")
    rows: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (1, 32, 128, 512), min_length=1, description="translations at once"
    )
    beam_size: int = Field(4, ge=2, description="of the beam search that is measured beside the greedy one")
    rounds: int = Field(3, gt=0, description="runs of each measurement, of which the fastest counts")
    steps: int = Field(50, gt=0, description="steps whose median counts")
    json_file: Path | None = Field(None, description="file that gets all figures")

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
        ours = measure(engine_of(open_sessions(bundle, self.device), rows, beam_size), chosen, self.rounds)
        theirs = None
        if self.run is not None:
            theirs = measure(pytorch_of(self._trained(self.run, bundle), rows, beam_size), chosen, self.rounds)
        return Result(rows, beam_size, len(chosen), ours, theirs)

    def _trained(self, run: Path, bundle: Bundle) -> object:
        """Returns the trained model where the bundle runs, in 16 bits if the bundle is."""
        import torch  # noqa: PLC0415 - who has no run needs no torch

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
        torch.set_num_threads(1)  # as our sessions have
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
    ours, theirs = result.engine, result.pytorch
    search = "greedy" if result.beam_size == 1 else f"beam {result.beam_size}"
    latency = 1e3 * ours.seconds / result.sentences * result.rows
    row = [search, str(result.rows), str(result.sentences), f"{ours.tokens_per_second:,.0f}", f"{latency:.1f}"]
    if theirs is None:
        return [*row, "-", "-", "-"]
    ratio = ours.tokens_per_second / theirs.tokens_per_second
    return [*row, f"{theirs.tokens_per_second:,.0f}", f"{ratio:.2f}", f"{result.identical:.2%}"]


def _step_table(steps: dict[str, list[StepTime]]) -> str:
    rows = [
        [name, str(each.rows), f"{1e3 * each.decoder_seconds:.3f}", f"{1e3 * each.step_seconds:.3f}"]
        for name, times in steps.items()
        for each in times
    ]
    return markdown_table(["steps", "rows", "decoder ms", "with choice of tokens ms"], rows)
