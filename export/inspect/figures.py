"""Collects the figures of a bundle without serving it, and formats them as text. 1 kB is 1,000 bytes.

Memory: decoder states and logits for every slot of every engine, as `dragoman.serve.runtime` allocates them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from dragoman.model.text_table import format_table
from dragoman.serve.bundle.bundle import MANIFEST_FILE, Bundle
from dragoman.serve.bundle.directions import directions_of
from dragoman.serve.bundle.manifest import CACHE_BLOCK_TOKENS, CacheSpec, Length, Manifest, Precision, StateSpec

# Logits are float32 in every precision. States are float32, float16 in fp16, or int8 if the manifest defines it.
FLOAT_BYTES = 4
STATE_BYTES: dict[Precision, int] = {"fp32": 4, "int8": 4, "fp16": 2}
LENGTHS: tuple[Length, Length] = ("target", "source")


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


def described_states(manifest: Manifest) -> tuple[StateSpec, ...]:
    """Returns the states of a bundle; a native cache is one state per layer and tensor."""
    cache = manifest.cache
    if cache is None:
        return manifest.states
    return tuple(
        state for layer in range(cache.layers) for length in LENGTHS for state in _layer_states(cache, length, layer)
    )


def _layer_states(cache: CacheSpec, length: Length, layer: int) -> Iterator[StateSpec]:
    if cache.recurrent and length == "target":
        yield StateSpec(name=f"target_cache_{layer}", shape=(cache.heads * cache.head_size,))
        return
    shape = (2, cache.heads, length)  # keys and values
    yield StateSpec(name=f"{length}_cache_{layer}", shape=(*shape, cache.head_size), element=cache.element)
    if cache.element == "int8":
        yield StateSpec(name=f"{length}_scales_{layer}", shape=shape)


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
class Inspection:
    """All figures of a bundle. `shortlist_ids` counts the likely target tokens of all source tokens."""

    folder: Path
    manifest: Manifest
    golden_sentences: int
    files: tuple[FileFigures, ...]
    engine: EngineMemory
    shortlist_ids: int


def inspect(bundle: Bundle, slots: int) -> Inspection:
    """Collects the figures of a bundle for engines with `slots` rows."""
    shortlist = bundle.shortlist()
    return Inspection(
        folder=bundle.folder,
        manifest=bundle.manifest,
        golden_sentences=len(bundle.golden),
        files=_files(bundle),
        engine=measure_engine(bundle.manifest, slots),
        shortlist_ids=0 if shortlist is None else int(shortlist.offsets[-1]),
    )


def _files(bundle: Bundle) -> tuple[FileFigures, ...]:
    states = {MANIFEST_FILE: "lists the others"} | dict.fromkeys(bundle.manifest.files, "sha256 as listed")
    return tuple(
        FileFigures(path.name, path.stat().st_size, states.get(path.name, "not listed"))
        for path in sorted(bundle.folder.iterdir())
    )


WIDTH = 110
# Smaller sizes are printed in bytes.
MIN_KILOBYTES = 10_000


def format_inspection(inspection: Inspection) -> str:
    """Returns the report: sections separated by blank lines."""
    files = [[file.name, file.state, format_bytes(file.size_bytes)] for file in inspection.files]
    return "\n\n".join(
        [
            _format_identity(inspection),
            _section("files", format_table(files, 2)),
            _section("memory", _format_memory(inspection.engine)),
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


def _stem(name: str) -> str:
    """Removes the layer number from the end of a name."""
    return name.rstrip("0123456789")


def _folded(states: Sequence[StateMemory]) -> str:
    """Returns the name of a state, or of several that differ only in a final number: key_0…5."""
    first, last = states[0].name, states[-1].name
    return first if len(states) == 1 else f"{first}…{last.removeprefix(_stem(first))}"


def _section(title: str, text: str) -> str:
    return f"{title}\n" + "\n".join(f"  {line}" for line in text.splitlines())


def _format_identity(inspection: Inspection) -> str:
    manifest, provenance = inspection.manifest, inspection.manifest.provenance
    rows = {
        "bundle": str(inspection.folder),
        "name": manifest.name,
        "directions": str(directions_of(manifest)),
        "architecture": _format_architecture(provenance.training.get("model")),
        "precision": manifest.precision,
        "variant": f"{manifest.variant}, ONNX opset {manifest.opset}",
        "format": f"version {manifest.format_version}",
        "vocabulary": f"{manifest.vocabulary_size:,} tokens; padding {manifest.pad_id}, unknown {manifest.unk_id}, "
        f"start {manifest.bos_id}, end {manifest.eos_id}",
        "limits": f"{manifest.max_source_tokens} source tokens, {manifest.max_target_tokens} target tokens",
        "shortlist": _format_shortlist(manifest, inspection.shortlist_ids),
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


def _format_shortlist(manifest: Manifest, ids: int) -> str:
    """Returns the size and the measurement; `ids` is the number of tokens of all entries."""
    spec = manifest.shortlist
    if spec is None:
        return "none"
    text = f"{'on' if spec.default else 'off'} by default; {spec.frequent:,} frequent tokens, up to {spec.best:,} per "
    text += f"source token, {ids:,} in total; "
    if not spec.sentences:
        return text + "not measured: run `dragoman shortlist`"
    share = _projection_share(manifest) * (1 - spec.candidates / manifest.vocabulary_size)
    return (
        f"{text}{spec.candidates:,.0f} candidates per sentence, which save {share:.0%} of the multiply-adds of a "
        f"decoder step; recall {spec.recall:.2%}, BLEU {spec.bleu:+.2f}, "
        f"chrF {spec.chrf:+.2f}, {spec.equal:.1%} of {spec.sentences:,} translations equal"
    )


def _projection_share(manifest: Manifest) -> float:
    """Returns the share of the output projection in the products of a decoder step with weights."""
    model: Any = manifest.provenance.training.get("model")
    width, inner = model["d_model"], model["d_ff"]
    # Those of self-attention or of a recurrent unit, and the queries and outputs of cross-attention.
    square = (2 if model.get("decoder_memory") == "ssru" else 4) + 2
    gated = model.get("activation") == "swiglu" or model.get("has_gate", False)
    layers = model["decoder_layers"] * (square * width**2 + (3 if gated else 2) * width * inner)
    projection = width * manifest.vocabulary_size
    return float(projection / (projection + layers))


def _format_memory(engine: EngineMemory) -> str:
    groups: dict[tuple[object, ...], list[StateMemory]] = {}
    for state in engine.states:
        groups.setdefault((_stem(state.name), state.kind, state.shape), []).append(state)
    rows = [
        *(
            [
                f"{_folded(group)}, {group[0].kind} state of a slot",
                str(list(group[0].shape)),
                format_bytes(sum(state.slot_bytes for state in group)),
            ]
            for group in groups.values()
        ),
        ["decoder state of a slot", "", format_bytes(engine.slot_bytes)],
        [f"decoder state of each engine, {engine.slots} slots", "", format_bytes(engine.state_bytes)],
        [f"logits of each engine, {engine.slots} slots", "", format_bytes(engine.logits_bytes)],
    ]
    return format_table(rows, 2)
