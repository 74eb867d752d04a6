"""`python -m tests.support.first_start`: what two commands need to serve a model on an empty machine.

They are `pip install '.[cpu]'` into an empty environment, and `dragoman serve` with the name of a model on a hub of
this machine. The model has the shape of OPUS-MT and random weights. Prints a table.

With `--here`, the environment of this process serves, and nothing is installed.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from benchmarks.harness.process import peak_bytes
from dragoman.serve.host.server_process import HOST, ServerProcess, reserve_ports
from tests.support.fake_hub import FakeHub, Repository, run_hub
from tests.support.marian import (
    EOS_PIECE,
    PAD_PIECE,
    UNK_PIECE,
    marian_pieces,
    pieces_of,
    random_marian,
    write_marian,
)

NAME = "Helsinki-NLP/opus-mt-en-de"
OPUS_MT: dict[str, Any] = {
    "d_model": 512,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "max_position_embeddings": 512,
}
VOCABULARY, PIECES, LEARNED_PIECES = 58_101, 32_000, 3_000
STARTS = 5
READY_SECONDS = 540.0
PROJECT = Path(__file__).parents[2]
# pip prints the name so.
DOWNLOADED = re.compile(r"Downloading \S+ \(([\d.]+) (kB|MB|GB)\)")
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}


@dataclass(frozen=True, slots=True)
class Start:
    """A start of the server: seconds until it is ready, and its peak memory."""

    seconds: float
    memory_bytes: int


def opus_mt_checkpoint(folder: Path) -> dict[str, bytes]:
    """Returns the files of a checkpoint of the shape of OPUS-MT: their names and contents."""
    sides = {side: _pieces(side) for side in ("source", "target")}
    both = dict.fromkeys(piece for model in sides.values() for piece in pieces_of(model)[2:])
    names = [EOS_PIECE, UNK_PIECE, *list(both)[: VOCABULARY - 3], PAD_PIECE]
    vocabulary = {piece: number for number, piece in enumerate(names)}
    write_marian(folder, random_marian(len(vocabulary), **OPUS_MT), vocabulary)
    for side, model in sides.items():
        (folder / f"{side}.spm").write_bytes(model)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _pieces(side: str) -> bytes:
    """Returns a SentencePiece model: pieces of the documentation, and others up to the usual number."""
    texts = [line for page in sorted((PROJECT / "docs").glob("*.md")) for line in page.read_text("utf-8").splitlines()]
    learned = marian_pieces(texts, LEARNED_PIECES)
    model = sentencepiece_model_pb2.ModelProto.FromString(learned)  # type: ignore[attr-defined]
    for number in range(PIECES - len(model.pieces)):
        model.pieces.add(piece=f"{side}{number}", score=-30.0)
    content: bytes = model.SerializeToString()
    return content


def install(environment: Path) -> tuple[float, float, float]:
    """Installs Dragoman into an empty environment; returns seconds, bytes downloaded and bytes installed."""
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    before = time.monotonic()
    command = [str(environment / "bin/pip"), "install", "--no-cache-dir", f"{PROJECT}[cpu]"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = time.monotonic() - before
    downloaded = sum(float(size) * UNITS[unit] for size, unit in DOWNLOADED.findall(output))
    return seconds, downloaded, folder_bytes(environment)


def folder_bytes(folder: Path) -> int:
    """Returns the size of all files of a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


@contextmanager
def hub_with_model(folder: Path) -> Iterator[FakeHub]:
    """Runs a hub with one model."""
    with run_hub() as hub:
        repository = hub.repositories[NAME] = Repository()
        repository.commit(opus_mt_checkpoint(folder / "checkpoint"))
        yield hub


def start(program: Path, log: Path, variables: Mapping[str, str]) -> Start:
    """Serves the model until it is ready."""
    with reserve_ports(0, 0) as (http_port, grpc_port):
        ports = ["--http-port", str(http_port), "--grpc-port", str(grpc_port), "--lame-duck-seconds", "0"]
        server = ServerProcess([str(program), "serve", NAME, "--host", HOST, *ports], http_port, log, variables)
        before = time.monotonic()
        server.start()
        try:
            server.wait_until_ready(READY_SECONDS)
            seconds = time.monotonic() - before
            return Start(seconds, peak_bytes(server.process_id))
        finally:
            server.stop()


def downloaded_bytes(hub: FakeHub) -> int:
    """Returns the size of the files that were requested from the hub."""
    (files,) = hub.repositories[NAME].commits.values()
    names = {path.rpartition("/")[2] for method, path, _ in hub.requests if method == "GET" and "/resolve/" in path}
    return sum(len(files[name]) for name in names)


def main() -> None:
    """Installs, serves several times, and prints the table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--here", action="store_true")
    here = parser.parse_args().here
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        program = Path(sys.executable).with_name("dragoman")
        if not here:
            environment = folder / "environment"
            seconds, downloaded, installed = install(environment)
            _print_row("pip install '.[cpu]'", f"{seconds:.0f} s")
            _print_row("packages downloaded", f"{downloaded / 1e6:.0f} MB")
            _print_row("environment, pip included", f"{installed / 1e6:.0f} MB")
            program = environment / "bin/dragoman"
        with hub_with_model(folder) as hub:
            cache = folder / "cache"
            variables = {"HF_ENDPOINT": hub.address, "HF_HOME": str(folder / "hf"), "DRAGOMAN_CACHE": str(cache)}
            log = folder / "log"
            first = start(program, log, variables)
            _print_row("files that the first start downloads", f"{downloaded_bytes(hub) / 1e6:.0f} MB")
            _print_row("bundle", f"{folder_bytes(cache / 'bundles') / 1e6:.0f} MB")
            _print_row("first start until ready", f"{first.seconds:.1f} s")
            _print_row("its peak memory", f"{first.memory_bytes / 1e6:.0f} MB")
        again = [start(program, log, {**variables, "HF_HUB_OFFLINE": "1"}) for _ in range(STARTS)]
        _print_row("later starts until ready, without a hub", ", ".join(f"{each.seconds:.1f}" for each in again) + " s")
        _print_row("their peak memory", f"{max(each.memory_bytes for each in again) / 1e6:.0f} MB")


def _print_row(what: str, figure: str) -> None:
    print(f"| {what} | {figure} |", flush=True)


if __name__ == "__main__":
    os.environ.pop("HF_TOKEN", None)
    main()
