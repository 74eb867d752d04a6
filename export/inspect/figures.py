"""Collects the figures of a bundle without serving it, and formats them as text. 1 kB is 1,000 bytes.

Memory: weights once, decoder states and logits for every slot of every engine, as `dragoman.serve.runtime` allocates
them. Native weights are counted with the padding of their blocks. Needs no PyTorch; without ONNX Runtime the optimized
operators are missing.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from textwrap import fill

import numpy as np

from dragoman.export.inspect.graph import (
    StoredGraph,
    TensorType,
    count_operators,
    count_parameters,
    distinct_weights,
    read_graph,
)
from dragoman.export.inspect.native_step import Block, described_states, native_blocks
from dragoman.export.inspect.shortlist import count_shortlist, describe_shortlist
from dragoman.model.text_table import format_table
from dragoman.serve.bundle.bundle import MANIFEST_FILE, Bundle
from dragoman.serve.bundle.directions import directions_of
from dragoman.serve.bundle.manifest import (
    CACHE_BLOCK_TOKENS,
    DECODER_INPUTS,
    ENCODER_INPUTS,
    LOGITS,
    Manifest,
    Precision,
    StateSpec,
)

# Logits are float32 in every precision. States are float32, float16 in fp16, or int8 if the manifest defines it.
FLOAT_BYTES = 4
STATE_BYTES: dict[Precision, int] = {"fp32": 4, "int8": 4, "fp16": 2}


@dataclass(frozen=True, slots=True)
class StateMemory:
    """One state tensor of a slot; lengths in its shape are the model's limits.

    `step_bytes` are written per row and decoder step; 0 if the encoder writes the state once.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    slot_bytes: int
    step_bytes: int


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """The memory of one engine without the shared weights; `slot_bytes` is the decoder state of one slot."""

    slots: int
    states: tuple[StateMemory, ...]
    slot_bytes: int
    state_bytes: int
    logits_bytes: int


def measure_engine(manifest: Manifest, slots: int) -> EngineMemory:
    """Returns the memory of an engine with `slots` slots."""
    states = tuple(_measure_state(spec, manifest) for spec in described_states(manifest))
    slot_bytes = sum(state.slot_bytes for state in states)
    return EngineMemory(slots, states, slot_bytes, slots * slot_bytes, slots * manifest.vocabulary_size * FLOAT_BYTES)


def _measure_state(spec: StateSpec, manifest: Manifest) -> StateMemory:
    limits = {"source": manifest.max_source_tokens, "target": manifest.max_target_tokens}
    if manifest.cache is not None:
        blocks = CACHE_BLOCK_TOKENS
        limits = {length: -(-tokens // blocks) * blocks for length, tokens in limits.items()}
    shape = tuple(limits[size] if isinstance(size, str) else size for size in spec.shape)
    dtype = np.dtype("int8" if spec.element == "int8" else f"f{STATE_BYTES[manifest.precision]}")
    value_bytes = prod(shape) * dtype.itemsize
    if spec.kind == "source":
        return StateMemory(spec.name, spec.kind, dtype.name, shape, value_bytes, 0)
    if spec.kind == "target":
        return StateMemory(spec.name, spec.kind, dtype.name, shape, value_bytes, value_bytes // limits["target"])
    # A native step writes in place; others read one buffer and write another.
    buffers = 2 if manifest.cache is None else 1
    return StateMemory(spec.name, spec.kind, dtype.name, shape, buffers * value_bytes, value_bytes)


@dataclass(frozen=True, slots=True)
class FileFigures:
    """A file of the bundle; `state` is its status in the manifest."""

    name: str
    size_bytes: int
    state: str


@dataclass(frozen=True, slots=True)
class GraphFigures:
    """The figures of a graph. Dynamic sizes in shapes are "rows", "source" or "target".

    `operators` counts stored nodes, `running` those after ONNX Runtime's optimization, None if it is not installed.
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

    `parameters` counts numbers by type; it and `weights_bytes` count weights that both graphs share once. `step` holds
    the blocks of a step of a native decoder. `shortlist_ids` counts the likely target tokens of all source tokens.
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
    shortlist_ids: int


def inspect(bundle: Bundle, slots: int) -> Inspection:
    """Collects the figures of a bundle for engines with `slots` rows; raises BundleError if a graph cannot be used."""
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
        step=() if manifest.cache is None else native_blocks(bundle, decoder, manifest.cache),
        engine=measure_engine(manifest, slots),
        shortlist_ids=count_shortlist(bundle),
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
    """Returns the manifest's shape of each input and output by name; native graphs name their sizes themselves."""
    if manifest.cache is not None:
        return {}
    shapes: dict[str, tuple[int | str, ...]] = dict.fromkeys((*ENCODER_INPUTS, *DECODER_INPUTS), ("rows",))
    shapes |= {ENCODER_INPUTS[0]: ("rows", "source"), LOGITS: ("rows", manifest.vocabulary_size)}
    for state in manifest.states:
        names = (state.name, state.decoder_input, state.decoder_output)
        shapes |= {name: ("rows", *state.shape) for name in names if name is not None}
    return shapes


def _named(tensor: TensorType, lengths: Mapping[str, Sequence[int | str]]) -> TensorType:
    """Replaces symbolic sizes of a graph, such as s69, by the manifest's names."""
    names = lengths.get(tensor.name, ())
    if len(names) != len(tensor.shape):
        return tensor
    shape = (
        name if isinstance(size, str) and isinstance(name, str) else size
        for size, name in zip(tensor.shape, names, strict=True)
    )
    return replace(tensor, shape=tuple(shape))


def _running_operators(path: Path) -> dict[str, int] | None:
    """Returns the operators after ONNX Runtime's optimization; None if it is not installed."""
    try:
        from dragoman.serve.runtime.cpu import save_optimized  # noqa: PLC0415 - needs ONNX Runtime
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        optimized = Path(folder) / path.name
        save_optimized(path, optimized)
        return count_operators(optimized)


WIDTH = 110
# Smaller sizes are printed in bytes.
MIN_KILOBYTES = 10_000
NO_BREAK = "\N{NO-BREAK SPACE}"


def format_inspection(inspection: Inspection) -> str:
    """Returns the report: sections separated by blank lines."""
    files = [[file.name, file.state, format_bytes(file.size_bytes)] for file in inspection.files]
    return "\n\n".join(
        [
            _format_identity(inspection),
            _section("files", format_table(files, 2)),
            *(_format_graph(graph) for graph in inspection.graphs),
            *([_section("one decoder step", _format_step(inspection.step))] if inspection.step else []),
            _section("memory", _format_memory(inspection)),
        ]
    )


def format_bytes(size: int) -> str:
    """Formats a size with three significant digits."""
    if size < MIN_KILOBYTES:
        return f"{size:,} B"
    for unit, scale in (("kB", 1e3), ("MB", 1e6)):
        if size < 999.5 * scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size / 1e9:,.2f} GB"


def format_shape(shape: Iterable[int | str]) -> str:
    """Formats a shape in brackets."""
    return f"[{', '.join(map(str, shape))}]"


def stem(name: str) -> str:
    """Removes the layer number from the end of a name."""
    return name.rstrip("0123456789")


def fold_names(names: Sequence[str]) -> str:
    """Joins names, and folds those that differ only in a final number: key_0…5."""
    by_stem: dict[str, list[str]] = {}
    for name in names:
        by_stem.setdefault(stem(name), []).append(name)
    return ", ".join(
        group[0] if len(group) == 1 else f"{group[0]}…{group[-1].removeprefix(start)}"
        for start, group in by_stem.items()
    )


def _section(title: str, text: str) -> str:
    return f"{title}\n" + "\n".join(f"  {line}" for line in text.splitlines())


def _format_identity(inspection: Inspection) -> str:
    manifest, provenance = inspection.manifest, inspection.manifest.provenance
    numbers = sum(inspection.parameters.values())
    types = ", ".join(f"{dtype} {count:,}" for dtype, count in inspection.parameters.items())
    rows = {
        "bundle": str(inspection.folder),
        "name": manifest.name,
        "directions": str(directions_of(manifest)),
        "architecture": _format_architecture(provenance.training.get("model")),
        "parameters": f"{numbers:,} ({types})",
        "precision": manifest.precision,
        "variant": f"{manifest.variant}, ONNX opset {manifest.opset}",
        "format": f"version {manifest.format_version}",
        "vocabulary": f"{manifest.vocabulary_size:,} tokens; padding {manifest.pad_id}, unknown {manifest.unk_id}, "
        f"start {manifest.bos_id}, end {manifest.eos_id}",
        "limits": f"{manifest.max_source_tokens} source tokens, {manifest.max_target_tokens} target tokens",
        "shortlist": describe_shortlist(manifest, inspection.shortlist_ids, inspection.step),
        "golden": f"{inspection.golden_sentences} sentences",
        "trained": f"{provenance.steps:,} steps",
        "created": provenance.created,
        "versions": ", ".join(f"{library} {version}" for library, version in provenance.versions.items()),
    }
    return "\n".join(
        fill(f"{name:13} {value}", WIDTH, subsequent_indent=" " * 14, break_on_hyphens=False, break_long_words=False)
        for name, value in rows.items()
    )


def _format_architecture(model: object) -> str:
    if not isinstance(model, Mapping):
        return "unknown"
    shape = {
        name: value for name, value in model.items() if name != "architecture" and not str(name).startswith("max_")
    }
    fields = ", ".join(f"{name} {value}" for name, value in shape.items())
    return f"{model.get('architecture', 'unknown')}: {fields}"


def _format_graph(graph: GraphFigures) -> str:
    rows = [*_tensor_rows("input", graph.inputs), *_tensor_rows("output", graph.outputs)]
    if graph.running is None:
        running = "ONNX Runtime is not installed"
    elif graph.running == graph.operators:
        running = "the same operators"
    else:
        running = _format_operators(graph.running)
    lines = [
        format_table(rows, 4),
        _wrap(f"stored: {_format_operators(graph.operators)}"),
        _wrap(f"running: {running}"),
    ]
    return _section(f"{graph.file}, {format_bytes(graph.weights_bytes)} of weights", "\n".join(lines))


def _tensor_rows(side: str, tensors: Sequence[TensorType]) -> list[list[str]]:
    """Returns one row per group of tensors with the same stem, type and shape."""
    groups: dict[tuple[object, ...], list[TensorType]] = {}
    for tensor in tensors:
        groups.setdefault((stem(tensor.name), tensor.dtype, tensor.shape), []).append(tensor)
    return [
        [side, fold_names([tensor.name for tensor in group]), group[0].dtype, format_shape(group[0].shape)]
        for group in groups.values()
    ]


def _format_operators(operators: Mapping[str, int]) -> str:
    return f"{sum(operators.values())} nodes: " + ", ".join(
        f"{name}{NO_BREAK}{count}" for name, count in operators.items()
    )


def _wrap(text: str) -> str:
    return fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False).replace(NO_BREAK, " ")


def _format_step(blocks: Sequence[Block]) -> str:
    rows = [
        [
            block.title,
            str(block.times),
            fold_names([state.name for state in block.reads]) or "-",
            fold_names([state.name for state in block.writes]) or "-",
            format_bytes(sum(matrix.size_bytes for matrix in block.matrices)),
        ]
        for block in blocks
    ]
    return format_table([["block", "times", "reads", "writes", "matrices"], *rows], 4)


def _format_memory(inspection: Inspection) -> str:
    engine = inspection.engine
    groups: dict[tuple[object, ...], list[StateMemory]] = {}
    for state in engine.states:
        groups.setdefault((stem(state.name), state.kind, state.shape), []).append(state)
    rows = [
        ["weights of both graphs, shared ones once", "", format_bytes(inspection.weights_bytes)],
        *(
            [
                f"{fold_names([state.name for state in group])}, {group[0].kind} state of a slot",
                format_shape(group[0].shape),
                format_bytes(sum(state.slot_bytes for state in group)),
            ]
            for group in groups.values()
        ),
        ["decoder state of a slot", "", format_bytes(engine.slot_bytes)],
        [f"decoder state of each engine, {engine.slots} slots", "", format_bytes(engine.state_bytes)],
        [f"logits of each engine, {engine.slots} slots", "", format_bytes(engine.logits_bytes)],
    ]
    return format_table(rows, 2)
