"""What is compared of each run: its size, its quality and its speed; as a table and as bars.

Called by `dragoman attention`. Knows neither models nor how the figures were obtained.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes

from examples.attention.run_scores import Scores
from model.config import ModelConfig, RecurrentConfig
from model.drawing import drawing

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
