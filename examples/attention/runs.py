"""What is compared of each run: its size, its quality and its speed; as a table and as bars.

Called by `dragoman attention`. Knows neither models nor how the figures were obtained.

Where a trained model looks in the source while it writes a given translation.

The translation is forced on the model: so all models write the same words, and the rows of their maps can be compared.
Called by `dragoman attention`; knows no plots.

Pictures of attention: target tokens downwards, source tokens to the right, the darker the more attended to.

`dragoman attention` writes them. Knows maps, not models.

How fast models translate in PyTorch: target tokens per second of greedy decoding.

This compares architectures under the same conditions; how fast a model is served is another matter, that of
`dragoman load`. Called by `dragoman attention`.

The scores of a run, read from the file that `dragoman evaluate RUN --json FILE` wrote.

Only what is needed is read of it: whatever else the file holds is ignored. Called by `dragoman attention`.
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
    """A model has no room for the sentence; the message tells which limit it exceeds."""


@dataclass(frozen=True, slots=True)
class AttentionMaps:
    """How one model divides its attention over one source.

    Attributes:
        source_pieces: the S source tokens, with the end token and what the direction puts before them.
        target_pieces: the T target tokens, each of which was predicted with the row of its number; with the end token.
        layers: weights of every head of every decoder layer that has attention, float32 [layers, heads, T, S].
    """

    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]
    layers: np.ndarray

    @property
    def summary(self) -> np.ndarray:
        """The mean over the heads of the last layer, [T, S]; the one map, of a model that has one."""
        return np.asarray(self.layers[-1].mean(axis=0))


@torch.inference_mode()
def force_maps(trained: TrainedModel, direction: Direction, source: str, target: str) -> AttentionMaps:
    """Has a model predict every token of a translation from the ones before it, and returns where it looked.

    Args:
        trained: the model.
        direction: one of those that it translates.
        source: a sentence.
        target: its translation.

    Raises:
        SentenceTooLongError: if the source or the target is longer than the model can read.
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
    """Draws one map of each of some models, side by side; the keys become titles."""
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
    """Draws every head of a model: a row for each decoder layer, a column for each head."""
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
    # A dollar sign is a token like any other, not the beginning of a formula.
    panel.set_xticks(range(len(maps.source_pieces)), maps.source_pieces, rotation=90, parse_math=False)


def _label_target(panel: Axes, maps: AttentionMaps) -> None:
    panel.set_yticks(range(len(maps.target_pieces)), maps.target_pieces, parse_math=False)


ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Task:
    """A model in evaluation mode, and the sources that it is to translate: at least one, each ending in EOS."""

    model: TranslationModel
    sources: Sequence[Sequence[int]]


def measure_speeds(
    tasks: Mapping[str, Task], batch_size: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Returns for each task its target tokens per second, end tokens included.

    The tasks take turns, and the fastest round of each counts: so what else the machine does hits none of them alone.

    Args:
        tasks: by name.
        batch_size: sources, of like length, that are translated at a time.
        clock: tells the time in seconds.
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
    # A step has one gap, also the step that ends the translation.
    tokens = sum(len(generated.gaps) for batch in batches for generated in generate_greedy(task.model, batch))
    return tokens / (clock() - started)


class ScoresError(Exception):
    """The file is not one that `dragoman evaluate` wrote, or lacks the direction; the message names it."""


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
    """Returns the scores that the file has for a direction.

    Raises:
        ScoresError: if it has none.
    """
    try:
        document = _Document.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ScoresError(f"{path}: expected a file written by `dragoman evaluate RUN --json FILE`: {error}") from error
    for evaluation in document.directions:
        if (evaluation.source_language, evaluation.target_language) == (direction.source, direction.target):
            return evaluation.system
    raise ScoresError(f"{path}: holds no scores for {direction}")


_BAR = 0.38
# Below it, a decimal place tells something.
_FEW = 100


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run.

    Attributes:
        name: of its folder.
        model: its architecture in words.
        parameters: how many numbers were trained.
        steps: of training, up to the checkpoint that is used.
        scores: on the test set; None if nobody has measured them.
        batch_size: of the larger batches.
        batched_tokens_per_second: greedy decoding of batches of `batch_size` sources.
        single_tokens_per_second: greedy decoding of one source after the other.
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
    """Returns a Markdown table with a row for each run."""
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
