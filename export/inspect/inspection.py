"""What can be told of a bundle without serving it: its files, its graphs, what a step does and what memory it takes.

Gathers figures; `export.inspect.figures` and `export.inspect.picture` show them. Needs neither torch
nor, unless it is there, ONNX Runtime.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from export.inspect.bundle_memory import EngineMemory, measure_engine
from export.inspect.graph import Block, find_blocks
from export.inspect.stored_graph import (
    StoredGraph,
    TensorType,
    count_operators,
    count_parameters,
    distinct_weights,
    read_graph,
)
from serve.bundle.bundle import MANIFEST_FILE, Bundle
from serve.bundle.manifest import DECODER_INPUTS, ENCODER_INPUTS, LOGITS, Manifest


@dataclass(frozen=True, slots=True)
class FileFigures:
    """A file of the bundle; `state` tells what its manifest says of it."""

    name: str
    size_bytes: int
    state: str


@dataclass(frozen=True, slots=True)
class GraphFigures:
    """A graph.

    Attributes:
        inputs: a size that differs from call to call is "rows", "source" or "target".
        operators: nodes of each operator, as stored.
        running: the same after ONNX Runtime's optimisations; None if it is not installed.
        weights_bytes: of the weights that it uses.
    """

    file: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    operators: dict[str, int]
    running: dict[str, int] | None
    weights_bytes: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """All figures of a bundle.

    Attributes:
        golden_sentences: how many there are.
        parameters: numbers that the graphs compute with, by their type; those that both share once.
        weights_bytes: of these and all other constants, those that both graphs share once.
        step: what the decoder graph does in one step.
        engine: what each engine of a server holds besides.
    """

    folder: Path
    manifest: Manifest
    golden_sentences: int
    files: tuple[FileFigures, ...]
    parameters: dict[str, int]
    weights_bytes: int
    graphs: tuple[GraphFigures, ...]
    step: tuple[Block, ...]
    engine: EngineMemory


def inspect(bundle: Bundle, slots: int) -> Inspection:
    """Looks at a bundle.

    Args:
        bundle: an opened one, so that every checksum is right.
        slots: rows of each engine that is to serve it.

    Raises:
        BundleError: if a graph cannot be read, or ONNX Runtime refuses it.
    """
    manifest = bundle.manifest
    encoder, decoder = read_graph(bundle.encoder_path), read_graph(bundle.decoder_path)
    weights = distinct_weights([encoder, decoder])
    lengths = _lengths(manifest)
    return Inspection(
        folder=bundle.folder,
        manifest=manifest,
        golden_sentences=len(bundle.golden),
        files=_files(bundle),
        parameters=count_parameters(weights),
        weights_bytes=sum(weight.size_bytes for weight in weights),
        graphs=(_graph(encoder, bundle.encoder_path, lengths), _graph(decoder, bundle.decoder_path, lengths)),
        step=find_blocks(decoder, manifest.states),
        engine=measure_engine(manifest, slots),
    )


def _files(bundle: Bundle) -> tuple[FileFigures, ...]:
    states = {MANIFEST_FILE: "lists the others"} | dict.fromkeys(bundle.manifest.files, "sha256 as listed")
    return tuple(
        FileFigures(path.name, path.stat().st_size, states.get(path.name, "not listed"))
        for path in sorted(bundle.folder.iterdir())
    )


def _graph(graph: StoredGraph, path: Path, lengths: Mapping[str, Sequence[int | str]]) -> GraphFigures:
    return GraphFigures(
        path.name,
        tuple(_named(tensor, lengths) for tensor in graph.inputs),
        tuple(_named(tensor, lengths) for tensor in graph.outputs),
        count_operators(path),
        _running_operators(path),
        sum(weight.size_bytes for weight in distinct_weights([graph])),
    )


def _lengths(manifest: Manifest) -> dict[str, tuple[int | str, ...]]:
    """Returns the shape of each input and output as the manifest has it, by its name."""
    shapes: dict[str, tuple[int | str, ...]] = dict.fromkeys((*ENCODER_INPUTS, *DECODER_INPUTS), ("rows",))
    shapes |= {ENCODER_INPUTS[0]: ("rows", "source"), LOGITS: ("rows", manifest.vocabulary_size)}
    for state in manifest.states:
        names = (state.name, state.decoder_input, state.decoder_output)
        shapes |= {name: ("rows", *state.shape) for name in names if name is not None}
    return shapes


def _named(tensor: TensorType, lengths: Mapping[str, Sequence[int | str]]) -> TensorType:
    """Gives the sizes without a number, for which a graph has symbols such as s69, the names that the manifest has."""
    names = lengths.get(tensor.name, ())
    if len(names) != len(tensor.shape):
        return tensor
    shape = (
        name if isinstance(size, str) and isinstance(name, str) else size
        for size, name in zip(tensor.shape, names, strict=True)
    )
    return replace(tensor, shape=tuple(shape))


def _running_operators(path: Path) -> dict[str, int] | None:
    """Returns the operators that ONNX Runtime runs in place of a graph's, None if it is not installed."""
    try:
        from serve.runtime.cpu import save_optimised  # noqa: PLC0415 - needs ONNX Runtime
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        optimised = Path(folder) / path.name
        save_optimised(path, optimised)
        return count_operators(optimised)
