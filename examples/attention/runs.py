"""Compares trained runs: attention maps of a given translation, greedy decoding speed in PyTorch, scores and size.

The translation is forced on every model, so that the rows of their maps correspond. The speed compares architectures,
not servers (`dragoman load`). Scores come from `dragoman evaluate RUN --json FILE`; other fields of that file are
ignored.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from pydantic import BaseModel, ValidationError

from model.config import Direction, ModelConfig, RecurrentConfig, TransformerConfig
from model.network.translation_model import TranslationModel
from model.provenance import drawing
from model.run import TrainedModel
from model.search import generate_greedy
from model.tokenizer.tokenizer import BOS_ID, EOS_ID


class SentenceTooLongError(Exception):
    """The sentence is too long for a model; the message has the limit."""


@dataclass(frozen=True, slots=True)
class AttentionMaps:
    """The attention of one model over one source.

    Attributes:
        source_pieces: the S source tokens, with the prefix of the direction and EOS.
        target_pieces: the T target tokens with EOS; row t of a map predicts token t.
        layers: weights per head of every decoder layer with attention, float32 [layers, heads, T, S].
    """

    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]
    layers: np.ndarray

    @property
    def summary(self) -> np.ndarray:
        """The mean over the heads of the last layer, [T, S]."""
        return np.asarray(self.layers[-1].mean(axis=0))


@torch.inference_mode()
def force_maps(trained: TrainedModel, direction: Direction, source: str, target: str) -> AttentionMaps:
    """Predicts every token of a translation from the previous ones and returns the attention.

    Raises:
        SentenceTooLongError: if the source or the target exceeds the model's limits.
    """
    (source_ids,) = trained.source_ids(direction, [source])
    target_ids = trained.tokenizer.encode(target)
    limits = trained.config.model
    if len(source_ids) > limits.max_source_tokens:
        raise SentenceTooLongError(f"{len(source_ids)} source tokens, expected at most {limits.max_source_tokens}")
    if len(target_ids) > limits.max_target_tokens:
        raise SentenceTooLongError(f"{len(target_ids)} target tokens, expected at most {limits.max_target_tokens}")
    (maps,) = trained.model.attention_maps(torch.tensor([source_ids]), torch.tensor([[BOS_ID, *target_ids]]))
    heads = limits.heads if isinstance(limits, TransformerConfig) else 1
    return AttentionMaps(
        tuple(trained.tokenizer.pieces(source_ids)),
        tuple(trained.tokenizer.pieces([*target_ids, EOS_ID])),
        maps.unflatten(0, (-1, heads)).float().numpy(),
    )


COLUMNS = 2
INCHES_PER_TOKEN = 0.19
NARROW_INCHES_PER_TOKEN = 0.14
MARGIN_INCHES = 1.3


def draw_summaries(maps: Mapping[str, AttentionMaps], path: Path) -> None:
    """Draws one map per model, side by side; the keys are the titles."""
    width = MARGIN_INCHES + INCHES_PER_TOKEN * max(len(shown.source_pieces) for shown in maps.values())
    height = MARGIN_INCHES + INCHES_PER_TOKEN * max(len(shown.target_pieces) for shown in maps.values())
    columns = min(COLUMNS, len(maps))
    rows = ceil(len(maps) / columns)
    with drawing(path, (columns * width, rows * height)) as figure:
        panels = figure.subplots(rows, columns, squeeze=False).flat
        for panel, (title, shown) in zip(panels, maps.items(), strict=False):
            _draw(panel, shown.summary)
            _label_source(panel, shown)
            _label_target(panel, shown)
            panel.set_title(title, parse_math=False)
        for panel in list(panels)[len(maps) :]:
            panel.set_axis_off()


def draw_heads(maps: AttentionMaps, path: Path) -> None:
    """Draws every head of a model: a row per decoder layer, a column per head."""
    layers, heads, rows, columns = maps.layers.shape
    width = MARGIN_INCHES + heads * columns * NARROW_INCHES_PER_TOKEN
    height = MARGIN_INCHES + layers * rows * NARROW_INCHES_PER_TOKEN
    with drawing(path, (width, height)) as figure:
        panels = figure.subplots(layers, heads, squeeze=False)
        for (layer, head), panel in np.ndenumerate(panels):
            _draw(panel, maps.layers[layer, head])
            if layer == 0:
                panel.set_title(f"head {head + 1}")
            if layer == layers - 1:
                _label_source(panel, maps)
            if head == 0:
                _label_target(panel, maps)
                panel.set_ylabel(f"layer {layer + 1}")


def _draw(panel: Axes, weights: np.ndarray) -> None:
    panel.imshow(weights, cmap="Blues", vmin=0, vmax=1, interpolation="none")
    panel.tick_params(length=0, labelsize=7)
    panel.set_xticks([])
    panel.set_yticks([])


def _label_source(panel: Axes, maps: AttentionMaps) -> None:
    # A dollar sign is a token, not the start of a formula.
    panel.set_xticks(range(len(maps.source_pieces)), maps.source_pieces, rotation=90, parse_math=False)


def _label_target(panel: Axes, maps: AttentionMaps) -> None:
    panel.set_yticks(range(len(maps.target_pieces)), maps.target_pieces, parse_math=False)


ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Task:
    """A model in evaluation mode and at least one source for it, each ending in EOS."""

    model: TranslationModel
    sources: Sequence[Sequence[int]]


def measure_speeds(
    tasks: Mapping[str, Task], batch_size: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Returns the target tokens per second of each task, EOS included.

    The tasks take turns in batches of similar length, and the fastest round of each counts: other load affects all
    alike.
    """
    speeds = dict.fromkeys(tasks, 0.0)
    for _ in range(ROUNDS):
        for name, task in tasks.items():
            speeds[name] = max(speeds[name], _tokens_per_second(task, batch_size, clock))
    return speeds


def _tokens_per_second(task: Task, batch_size: int, clock: Callable[[], float]) -> float:
    ordered = sorted(task.sources, key=len)
    batches = [ordered[start : start + batch_size] for start in range(0, len(ordered), batch_size)]
    started = clock()
    # Each step has one gap, that of EOS included.
    tokens = sum(len(generated.gaps) for batch in batches for generated in generate_greedy(task.model, batch))
    return tokens / (clock() - started)


class ScoresError(Exception):
    """The file was not written by `dragoman evaluate`, or lacks the direction."""


class Scores(BaseModel):
    """BLEU and chrF of sacreBLEU, 0 to 100."""

    bleu: float
    chrf: float


class _Evaluation(BaseModel):
    source_language: str
    target_language: str
    system: Scores


class _Document(BaseModel):
    directions: list[_Evaluation]


def read_scores(path: Path, direction: Direction) -> Scores:
    """Returns the scores of a direction.

    Raises:
        ScoresError: if there are none.
    """
    try:
        document = _Document.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ScoresError(f"{path}: expected a file written by `dragoman evaluate RUN --json FILE`: {error}") from error
    for evaluation in document.directions:
        if (evaluation.source_language, evaluation.target_language) == (direction.source, direction.target):
            return evaluation.system
    raise ScoresError(f"{path}: expected scores for {direction}")


_BAR = 0.38
# Smaller figures have one decimal.
_FEW = 100


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run.

    Attributes:
        model: its architecture in words.
        steps: training steps of the checkpoint.
        scores: on the test set; None: not measured.
        batched_tokens_per_second: greedy decoding in batches of `batch_size` sources.
        single_tokens_per_second: greedy decoding of one source at a time.
    """

    name: str
    model: str
    parameters: int
    steps: int
    scores: Scores | None
    batch_size: int
    batched_tokens_per_second: float
    single_tokens_per_second: float


def describe(config: ModelConfig) -> str:
    """Returns the architecture in words, as in `recurrent, additive`."""
    if isinstance(config, RecurrentConfig):
        return f"recurrent, {config.attention.replace('_', ' ')}{', hard' if config.hard else ''}"
    return f"Transformer, {config.encoder_layers} + {config.decoder_layers} layers"


def format_results(results: Sequence[RunResult]) -> str:
    """Returns a Markdown table with a row per run."""
    heading = ("run", "model", "parameters", "steps", "BLEU", "chrF")
    speeds = (f"tokens/s, batch {results[0].batch_size}", "tokens/s, batch 1")
    lines = [_row((*heading, *speeds)), _row(("---", "---", *["---:"] * 6))]
    for result in results:
        scores = result.scores
        quality = ("", "") if scores is None else (_to_text(scores.bleu), _to_text(scores.chrf))
        speed = (_to_text(result.batched_tokens_per_second), _to_text(result.single_tokens_per_second))
        size = (f"{result.parameters:,}", f"{result.steps:,}")
        lines.append(_row((result.name, result.model, *size, *quality, *speed)))
    return "\n".join(lines)


def draw_results(results: Sequence[RunResult], path: Path) -> None:
    """Draws quality and speed of the runs as bars, side by side."""
    batched = f"batch {results[0].batch_size}"
    with drawing(path, (10.0, 1.2 + 0.55 * len(results))) as figure:
        quality, speed = figure.subplots(1, 2, sharey=True)
        _draw_bars(quality, results, "BLEU", lambda result: result.scores.bleu if result.scores else None, upper=True)
        _draw_bars(quality, results, "chrF", lambda result: result.scores.chrf if result.scores else None, upper=False)
        _draw_bars(speed, results, batched, lambda result: result.batched_tokens_per_second, upper=True)
        _draw_bars(speed, results, "batch 1", lambda result: result.single_tokens_per_second, upper=False)
        quality.set_title("quality")
        quality.set_xlim(0, 100)
        quality.set_yticks(range(len(results)), [result.name for result in results], parse_math=False)
        quality.invert_yaxis()
        speed.set_title("target tokens per second, greedy")
        speed.margins(x=0.12)
        for panel in (quality, speed):
            panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)


def _draw_bars(
    panel: Axes, results: Sequence[RunResult], label: str, value: Callable[[RunResult], float | None], *, upper: bool
) -> None:
    values = [value(result) for result in results]
    heights = [row + (-_BAR if upper else _BAR) / 2 for row in range(len(results))]
    bars = panel.barh(heights, [shown or 0.0 for shown in values], height=_BAR, label=label)
    panel.bar_label(bars, ["" if shown is None else _to_text(shown) for shown in values], padding=2, fontsize=8)


def _to_text(value: float) -> str:
    return f"{value:.1f}" if value < _FEW else f"{value:,.0f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
