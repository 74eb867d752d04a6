"""The servers that `dragoman bench online` compares: how each is started, and with which settings it is tried.

All hold the same weights and get the same CPUs. Knows no load and no torch.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.online_options import OnlineOptions
from benchmarks.online_results import Setting, SystemName
from benchmarks.online_server import PeerServer
from benchmarks.systems.compute_type import compute_type
from benchmarks.systems.model_files import ModelFiles
from serve.server_process import server_command
from serve.settings import QUEUE_PER_SLOT

FOLDERS: dict[SystemName, str] = {
    "dragoman": "bundle",
    "onnx": "bundle",
    "ctranslate2": "ctranslate2",
    "pytorch": "checkpoint",
}
_TRANSLATORS: dict[SystemName, str] = {
    "onnx": "benchmarks.systems.engine_translator:EngineTranslator",
    "ctranslate2": "benchmarks.systems.ctranslate2_translator:CTranslate2Translator",
    "pytorch": "benchmarks.systems.pytorch_translator:PyTorchTranslator",
}


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What all servers serve.

    Attributes:
        workshop: the folder with the files of all systems, in those of `FOLDERS`.
        tokenizer: the file of the tokenizer.
        prefix, suffix: tokens before and after those of every source.
        longest: tokens of a translation, at most.
    """

    workshop: Path
    tokenizer: Path
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    longest: int


def write_files(model: ModelFiles, workshop: Path, options: OnlineOptions) -> None:
    """Writes the files of the systems that are measured."""
    writers: Mapping[str, Callable[[Path], None]] = {
        "bundle": lambda folder: model.write_bundle(folder, "cpu", options.precision),
        "ctranslate2": lambda folder: model.write_ctranslate2(folder, compute_type(options.precision)),
        "checkpoint": model.write_checkpoint,
    }
    for name in dict.fromkeys(FOLDERS[system] for system in systems_of(options)):
        writers[name](workshop / name)


def systems_of(options: OnlineOptions) -> list[SystemName]:
    """Returns what is measured, ours first."""
    return ["dragoman", *options.peers]


def settings_of(system: SystemName, options: OnlineOptions) -> list[Setting]:
    """Returns what is tried of a system; ours has its defaults."""
    cpus = len(options.server_cpus)
    if system == "dragoman":
        return [Setting(cpus, 1, None)]
    # Static batches follow each other: while one is computed the next one waits, whatever finishes early.
    shapes = [(1, cpus)] if system != "ctranslate2" else list(dict.fromkeys([(cpus, 1), (1, cpus)]))
    return [Setting(copies, threads, window) for copies, threads in shapes for window in options.windows_ms]


def command_of(
    system: SystemName,
    setting: Setting,
    ports: tuple[int, int],
    *,
    beam_size: int,
    model: ServedModel,
    options: OnlineOptions,
) -> list[str]:
    """Returns the command line of a server.

    Args:
        system: which.
        setting: of the system.
        ports: of REST and of gRPC.
        beam_size: 1 is greedy search.
        model: what it serves.
        options: of the benchmark.
    """
    folder = model.workshop / FOLDERS[system]
    if system == "dragoman":
        return [*server_command(folder, *ports), "--slots", str(options.slots)]
    extra: dict[SystemName, dict[str, Any]] = {
        # Every row of a batch has its slot: none waits for another one's end.
        "onnx": {"slots": options.batch_size * beam_size},
        "ctranslate2": {"compute_type": compute_type(options.precision)},
    }
    # The engines take the CPUs one by one; a batch is shared out among them.
    copies, threads = (setting.threads, 1) if system == "onnx" else (setting.copies, setting.threads)
    server = PeerServer(
        port=ports[0],
        translator=_TRANSLATORS[system],
        options={"folder": str(folder), "copies": copies, "threads": threads, **extra.get(system, {})},
        tokenizer=model.tokenizer,
        prefix=model.prefix,
        suffix=model.suffix,
        longest=model.longest,
        beam_size=beam_size,
        size=options.batch_size,
        window_seconds=setting.window_ms / 1000 if setting.window_ms is not None else 0.0,
        workers=setting.copies,
        waiting=QUEUE_PER_SLOT * options.slots * len(options.server_cpus),
    )
    return [sys.executable, "-m", "benchmarks.online_server", server.model_dump_json()]
