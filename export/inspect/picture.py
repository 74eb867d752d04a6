"""Draws one decoder step: blocks in the middle, encoder states on the left, decoder states on the right.

Shapes are of all rows, bytes of one row.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from dragoman.export.inspect.figures import NO_BREAK, Inspection, StateMemory, fold_names, format_bytes, format_shape
from dragoman.export.inspect.graph import Block, TensorType, fold_blocks
from dragoman.model.provenance import drawing
from dragoman.serve.bundle.manifest import DECODER_INPUTS, LOGITS, StateSpec

# Left and right edges of the columns, and the distances between lines and boxes, in inches.
LEFT, MIDDLE, RIGHT = (0.2, 3.0), (4.1, 7.2), (8.3, 11.1)
WIDTH = 11.3
LINE, PADDING, GAP, MARGIN = 0.175, 0.1, 0.48, 0.45
CHARACTERS_PER_INCH = 12.5
COLORS = {"block": "#e3ebf6", "source": "#e2f1e2", "target": "#fdebd3", "recurrent": "#f5e2f0"}


@dataclass(frozen=True, slots=True)
class _Text:
    """The lines of a box, the first one bold; `kind` selects the color."""

    lines: tuple[str, ...]
    kind: str

    @property
    def height(self) -> float:
        return LINE * len(self.lines) + 2 * PADDING


@dataclass(frozen=True, slots=True)
class _Flow:
    """A box of states next to a block; `read` and `written` label the arrows, None for no arrow."""

    text: _Text
    read: str | None
    written: str | None


@dataclass(frozen=True, slots=True)
class _Row:
    """A block, the states to its left and right, and the label of the arrow below."""

    text: _Text
    left: tuple[_Flow, ...]
    right: tuple[_Flow, ...]
    carries: str

    @property
    def height(self) -> float:
        return max(self.text.height, _stack_height(self.left), _stack_height(self.right))


def draw_step(inspection: Inspection, path: Path) -> None:
    """Draws the decoder step as SVG; repeated blocks are drawn once, with their number of rounds."""
    memory = {state.name: state for state in inspection.engine.states}
    stages = [
        (len(repetition.rounds), [_row(alike, memory) for alike in zip(*repetition.rounds, strict=True)])
        for repetition in fold_blocks(inspection.step)
    ]
    height = 2 * MARGIN + GAP + sum(row.height + GAP for _, rows in stages for row in rows)
    with drawing(path, (WIDTH, height)) as figure:
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, WIDTH)
        axes.set_ylim(height, 0)
        _draw_captions(axes, inspection, height)
        top = MARGIN + GAP
        given = (name for name in DECODER_INPUTS if name in inspection.manifest.decoder.inputs)
        _draw_down(axes, top, ", ".join(f"{name} [R]" for name in given))
        for rounds, rows in stages:
            start = top
            for row in rows:
                _draw_row(axes, row, top)
                top += row.height + GAP
                _draw_down(axes, top, row.carries)
            if rounds > 1:
                _draw_frame(axes, start, top - GAP, f"{rounds} times")


def _row(alike: Sequence[Block], memory: dict[str, StateMemory]) -> _Row:
    """Returns the drawing of blocks with the same form, one per round."""
    block = alike[0]
    operators = {0: "", 1: "one operator, "}.get(block.nodes, f"{block.nodes} operators, ")
    size = format_bytes(sum(matrix.size_bytes for matrix in block.matrices))
    left: list[_Flow] = []
    right: list[_Flow] = []
    for kind, is_read, is_written in dict.fromkeys(_use(block, state) for state in (*block.reads, *block.writes)):
        states = [
            state
            for one in alike
            for state in dict.fromkeys((*one.reads, *one.writes))
            if _use(one, state) == (kind, is_read, is_written)
        ]
        flow = _flow([memory[state.name] for state in states], len(alike), is_read=is_read, is_written=is_written)
        (left if kind == "source" else right).append(flow)
    return _Row(
        _Text((block.title, f"{operators}matrices {size}", *_matrix_lines(block)), "block"),
        tuple(left),
        tuple(right),
        ", ".join(map(_format_tensor, block.carries)),
    )


def _matrix_lines(block: Block) -> list[str]:
    """Returns the shapes of a block's matrices with counts; lines break only between shapes."""
    counts = Counter((matrix.dtype, format_shape(matrix.shape)) for matrix in block.matrices)
    lines = []
    for dtype in dict.fromkeys(dtype for dtype, _ in counts):
        shapes = [
            shape if count == 1 else f"{count} of {shape}" for (own, shape), count in counts.items() if own == dtype
        ]
        lines += _wrapped(
            ", ".join(part.replace(" ", NO_BREAK) for part in (f"{dtype} {shapes[0]}", *shapes[1:])), MIDDLE
        )
    return [line.replace(NO_BREAK, " ") for line in lines]


def _use(block: Block, state: StateSpec) -> tuple[str, bool, bool]:
    return state.kind, state in block.reads, state in block.writes


def _flow(states: Sequence[StateMemory], rounds: int, *, is_read: bool, is_written: bool) -> _Flow:
    """Returns a box of states of one kind; bytes are per round."""
    tensors = len(states) // rounds
    count = "one tensor" if tensors == 1 else f"{tensors} tensors"
    slot_bytes = sum(state.slot_bytes for state in states) // rounds
    read_bytes = slot_bytes // 2 if states[0].kind == "recurrent" else slot_bytes
    limit = "" if states[0].kind == "recurrent" else "≤ "
    types = dict.fromkeys(f"{state.dtype} {format_shape(('R', *state.shape))}" for state in states)
    return _Flow(
        _Text(
            (
                *_wrapped(fold_names([state.name for state in states]), LEFT),
                *types,
                f"{count}, {format_bytes(slot_bytes)} per slot",
            ),
            states[0].kind,
        ),
        f"{limit}{format_bytes(read_bytes)}" if is_read else None,
        format_bytes(sum(state.step_bytes for state in states) // rounds) if is_written else None,
    )


def _format_tensor(tensor: TensorType) -> str:
    size = "" if tensor.row_bytes is None else f", {format_bytes(tensor.row_bytes)}"
    name = f"{LOGITS} " if tensor.name == LOGITS else ""
    return f"{name}{tensor.dtype} {format_shape(('R', *tensor.shape[1:]))}{size}"


def _wrapped(text: str, column: tuple[float, float]) -> list[str]:
    return wrap(text, int((column[1] - column[0]) * CHARACTERS_PER_INCH), break_on_hyphens=False)


def _stack_height(flows: Sequence[_Flow]) -> float:
    return sum(flow.text.height + PADDING for flow in flows) - PADDING if flows else 0


def _draw_captions(axes: Axes, inspection: Inspection, height: float) -> None:
    manifest = inspection.manifest
    captions = (
        (LEFT, "written once by the encoder"),
        (MIDDLE, f"one decoder step of {manifest.name}, {manifest.precision}"),
        (RIGHT, "kept from step to step"),
    )
    for column, caption in captions:
        axes.text(sum(column) / 2, MARGIN / 2, caption, ha="center", va="center", weight="bold")
    note = "R rows per step; bytes are per row. State lengths are the model's limits: "
    limits = f"{manifest.max_source_tokens} source and {manifest.max_target_tokens} target tokens."
    axes.text(LEFT[0], height - MARGIN / 2, note + limits, va="center", color="dimgray")


def _draw_row(axes: Axes, row: _Row, top: float) -> None:
    _draw_box(axes, MIDDLE, top, row.height, row.text)
    for column, flows in ((LEFT, row.left), (RIGHT, row.right)):
        place = top + (row.height - _stack_height(flows)) / 2
        for flow in flows:
            _draw_box(axes, column, place, flow.text.height, flow.text)
            _draw_exchange(axes, column, place + flow.text.height / 2, flow)
            place += flow.text.height + PADDING


def _draw_exchange(axes: Axes, column: tuple[float, float], center: float, flow: _Flow) -> None:
    box, block = (column[1], MIDDLE[0]) if column is LEFT else (column[0], MIDDLE[1])
    apart = 0.13 if flow.read and flow.written else 0.0
    if flow.read is not None:
        _draw_arrow(axes, (box, center - apart), (block, center - apart))
        axes.text((box + block) / 2, center - apart - 0.04, flow.read, ha="center", va="bottom", size=8)
    if flow.written is not None:
        _draw_arrow(axes, (block, center + apart), (box, center + apart))
        axes.text((box + block) / 2, center + apart + 0.05, flow.written, ha="center", va="top", size=8)


def _draw_down(axes: Axes, end: float, label: str) -> None:
    """Draws the arrow above a block, or below the last one."""
    middle = sum(MIDDLE) / 2
    _draw_arrow(axes, (middle, end - GAP), (middle, end))
    axes.text(middle + 0.1, end - GAP / 2, label, ha="left", va="center", size=8)


def _draw_box(axes: Axes, column: tuple[float, float], top: float, height: float, text: _Text) -> None:
    left, right = column
    rounded = "round,pad=0,rounding_size=0.06"
    color = COLORS[text.kind]
    axes.add_patch(
        FancyBboxPatch((left, top), right - left, height, boxstyle=rounded, facecolor=color, edgecolor="dimgray")
    )
    first, *others = text.lines
    center = top + (height - LINE * len(others)) / 2
    axes.text((left + right) / 2, center, first, ha="center", va="center", weight="bold")
    for number, line in enumerate(others, start=1):
        axes.text((left + right) / 2, center + LINE * number, line, ha="center", va="center", size=8)


def _draw_frame(axes: Axes, top: float, bottom: float, label: str) -> None:
    corner, width, height = (LEFT[0] - PADDING, top - PADDING), RIGHT[1] - LEFT[0] + 2 * PADDING, bottom - top
    axes.add_patch(Rectangle(corner, width, height + 2 * PADDING, fill=False, linestyle="--", edgecolor="gray"))
    axes.text(LEFT[0], top - PADDING - 0.05, label, ha="left", va="bottom", weight="bold", color="dimgray")


def _draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    style = {"arrowstyle": "-|>", "color": "black", "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)
