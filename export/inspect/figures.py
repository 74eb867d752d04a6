"""The figures of a bundle as text for a terminal; `dragoman inspect` prints it. 1 kB is 1,000 bytes."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill

from export.inspect.bundle_memory import StateMemory
from export.inspect.graph import Block, fold_blocks
from export.inspect.inspection import GraphFigures, Inspection
from export.inspect.stored_graph import TensorType
from model.text_table import format_table

WIDTH = 110
# Below this, every byte is told.
SMALLEST_KILOBYTES = 10_000
NO_BREAK = "\N{NO-BREAK SPACE}"


def format_inspection(inspection: Inspection) -> str:
    """Returns what there is to tell, in sections with a blank line between."""
    files = [[file.name, file.state, format_bytes(file.size_bytes)] for file in inspection.files]
    return "\n\n".join(
        [
            _format_identity(inspection),
            _section("files", format_table(files, 2)),
            *(_format_graph(graph) for graph in inspection.graphs),
            _section("one decoder step", _format_step(inspection.step)),
            _section("memory", _format_memory(inspection)),
        ]
    )


def format_bytes(size: int) -> str:
    """Returns a size with a unit that keeps it short."""
    if size < SMALLEST_KILOBYTES:
        return f"{size:,} B"
    for unit, scale in (("kB", 1e3), ("MB", 1e6)):
        if size < 999.5 * scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size / 1e9:,.2f} GB"


def format_shape(shape: Iterable[int | str]) -> str:
    """Returns a shape in brackets."""
    return f"[{', '.join(map(str, shape))}]"


def stem(name: str) -> str:
    """Returns a name without the number of a layer at its end."""
    return name.rstrip("0123456789")


def fold_names(names: Sequence[str]) -> str:
    """Returns names that differ in a number at their end as one, such as key_0…5; others one after another."""
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
        "directions": ", ".join(map(str, manifest.directions)),
        "architecture": _format_architecture(provenance.training.get("model")),
        "parameters": f"{numbers:,} ({types})",
        "precision": manifest.precision,
        "variant": f"{manifest.variant}, ONNX opset {manifest.opset}",
        "format": f"version {manifest.format_version}",
        "vocabulary": f"{manifest.vocabulary_size:,} tokens; padding {manifest.pad_id}, unknown {manifest.unk_id}, "
        f"start {manifest.bos_id}, end {manifest.eos_id}",
        "limits": f"{manifest.max_source_tokens} source tokens, {manifest.max_target_tokens} target tokens",
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
        return "not told"
    shape = {
        name: value for name, value in model.items() if name != "architecture" and not str(name).startswith("max_")
    }
    told = ", ".join(f"{name} {value}" for name, value in shape.items())
    return f"{model.get('architecture', 'not told')}: {told}"


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
    """Returns a row for each group of tensors that have names alike and one type."""
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
    rows = [["block", "times", "reads", "writes", "matrices"]]
    for repetition in fold_blocks(blocks):
        for alike in zip(*repetition.rounds, strict=True):
            matrices_bytes = sum(matrix.size_bytes for block in alike for matrix in block.matrices)
            rows.append(
                [
                    alike[0].title,
                    str(len(alike)),
                    fold_names([state.name for block in alike for state in block.reads]) or "-",
                    fold_names([state.name for block in alike for state in block.writes]) or "-",
                    format_bytes(matrices_bytes),
                ]
            )
    return format_table(rows, 4)


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
