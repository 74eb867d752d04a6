"""Random Transformers with every option, and forced decoding of their graphs without the engine."""

import getpass
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from dragoman.export.graphs.graph_files import ALIGNMENT_BYTES, MIN_EXTERNAL_BYTES
from dragoman.model.data.batches import pad
from dragoman.model.network.transformer import Transformer
from dragoman.model.tokenizer.tokenizer import BOS_ID
from dragoman.serve.bundle.bundle import DECODER_FILE, ENCODER_FILE, WEIGHTS_FILE, Bundle
from dragoman.serve.bundle.manifest import AttentionHead
from dragoman.serve.runtime.placement import ModelSessions
from tests.support.paths import ROOT
from tests.support.stepping import each, logits_of_step
from tests.support.toy import TOY, random_sources

ROWS = 6
# Heads of a model with two layers of two heads.
HEADS = (AttentionHead(layer=1, head=1), AttentionHead(layer=0, head=0), AttentionHead(layer=1, head=0))
MODELS: dict[str, dict[str, Any]] = TOY["graphs"]


def forced_targets(model: Transformer) -> NDArray[np.int64]:
    """Returns random target tokens, int64 [ROWS, T]."""
    targets = np.random.default_rng(2).integers(4, model.vocabulary_size, size=(ROWS, model.config.max_target_tokens))
    targets[:, 0] = BOS_ID
    return targets


@torch.inference_mode()
def expected_logits(model: Transformer) -> NDArray[np.float32]:
    """Returns the logits of the forced translations in PyTorch, float32 [ROWS, T, V]."""
    logits: NDArray[np.float32] = model(
        pad(random_sources(model, 1, ROWS)), torch.tensor(forced_targets(model))
    ).numpy()
    return logits


def decoded_logits(model: Transformer, sessions: ModelSessions, *, aligned: bool = False) -> NDArray[np.float32]:
    """Returns the logits of the forced translations in the graphs, all rows together, float32 [ROWS, T, V]."""
    return _decode(model, sessions, np.arange(ROWS), aligned=aligned)


def decode_alone_and_together(model: Transformer, sessions: ModelSessions) -> Iterator[tuple[bytes, bytes]]:
    """Yields the logits of forced translations by row and step: alone, and in a batch of ROWS."""
    together = decoded_logits(model, sessions)
    for row in range(ROWS):
        (alone,) = _decode(model, sessions, np.array([row]))
        yield from zip(map(bytes, alone), map(bytes, together[row]), strict=True)


def _decode(
    model: Transformer, sessions: ModelSessions, rows: NDArray[np.int64], *, aligned: bool = False
) -> NDArray[np.float32]:
    sources, targets = random_sources(model, 1, ROWS), forced_targets(model)[rows]
    lengths = np.array([len(sources[row]) for row in rows], np.int32)
    runtime = sessions.runtime(len(rows))
    runtime.encode(pad([sources[row] for row in rows]).numpy(), lengths, each(range(len(rows))))
    steps = [
        logits_of_step(runtime, column, np.full(len(rows), position, np.int32), lengths, aligned=aligned)
        for position, column in enumerate(targets.T)
    ]
    return np.stack(steps, axis=1)


def graphs_of_bundle(bundle: Bundle) -> list[onnx.ModelProto]:
    """Returns encoder and decoder, without weights."""
    return [onnx.load(bundle.folder / name, load_external_data=False) for name in (ENCODER_FILE, DECODER_FILE)]


def places_of(graph: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    """Returns offset and length of each weight in the file of weights."""
    stored = {}
    for tensor in graph.graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        if place:
            assert place["location"] == WEIGHTS_FILE
            stored[tensor.name] = int(place["offset"]), int(place["length"])
        else:
            assert len(tensor.raw_data) < MIN_EXTERNAL_BYTES
    return stored


def assert_packed(bundle: Bundle) -> list[bytes]:
    """Checks that the graphs read the whole file of weights, in pieces at multiples of 64 bytes; returns the pieces."""
    pieces = sorted({place for graph in graphs_of_bundle(bundle) for place in places_of(graph).values()})
    content = (bundle.folder / WEIGHTS_FILE).read_bytes()
    end = 0
    for offset, length in pieces:
        assert offset % ALIGNMENT_BYTES == 0
        assert 0 <= offset - end < ALIGNMENT_BYTES
        end = offset + length
    assert end == len(content)
    return [content[offset : offset + length] for offset, length in pieces]


def assert_named(bundle: Bundle) -> None:
    """Checks that the graphs have the names of the manifest, and that no file has a name or path of this machine."""
    signatures = (bundle.manifest.encoder, bundle.manifest.decoder)
    for graph, signature in zip(graphs_of_bundle(bundle), signatures, strict=True):
        assert tuple(value.name for value in graph.graph.input) == signature.inputs
        assert tuple(value.name for value in graph.graph.output) == signature.outputs
    private = [str(ROOT), str(Path.home()), str(Path(torch.__file__).parent), "site-packages"]
    private += [".py", str(bundle.folder), getpass.getuser() + "@"]
    for file in bundle.folder.iterdir():
        content = file.read_bytes()
        assert [word for word in private if word.encode() in content] == [], file.name
