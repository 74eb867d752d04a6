"""Compares trained models: quality, size, and the speed of greedy search in PyTorch.

The speed compares architectures, not servers (`dragoman load`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.export.source_model import Exportable
from dragoman.model.config import RecurrentConfig, TransformerConfig
from dragoman.model.data.corpus import Corpus
from dragoman.model.markup_table import markup_table
from dragoman.model.network.translation_model import TranslationModel
from dragoman.model.provenance import drawing
from dragoman.model.scoring import score
from dragoman.model.search import translate_all
from examples.attention.maps import source_ids_of

ROUNDS = 3
Sources = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Result:
    """One model; the speeds are target tokens per second, EOS included, in batches and one source at a time."""

    name: str
    model: str
    parameters: int
    steps: int
    bleu: float
    chrf: float
    batched: float
    single: float


def compare(models: Mapping[str, Exportable], corpus: Corpus, batch_size: int, timed: int) -> list[Result]:
    """Translates the corpus with every model, and measures the speed on its first `timed` sentences."""
    sources = {
        name: [source_ids_of(model, corpus.direction, text) for text in corpus.sources]
        for name, model in models.items()
    }
    tasks = {name: (model.network, sources[name][:timed]) for name, model in models.items()}
    batched, single = measure_speeds(tasks, batch_size), measure_speeds(tasks, 1)
    results = []
    for name, model in models.items():
        translated = translate_all(model.network, sources[name], batch_size)
        quality = score([model.tokenizer.decode(item.target_ids) for item in translated], corpus.targets)
        parameters = sum(parameter.numel() for parameter in model.network.parameters())
        architecture = describe(model.model.limits)
        scores = (quality.bleu, quality.chrf)
        results.append(Result(name, architecture, parameters, model.steps, *scores, batched[name], single[name]))
    return results


def readable_pairs(models: Mapping[str, Exportable], corpus: Corpus) -> Corpus:
    """Returns the pairs with a source that fits the limit of every model."""

    def readable(text: str) -> bool:
        return all(
            len(source_ids_of(model, corpus.direction, text)) <= model.model.limits.max_source_tokens
            for model in models.values()
        )

    return corpus.select([index for index, text in enumerate(corpus.sources) if readable(text)])


def measure_speeds(
    tasks: Mapping[str, tuple[TranslationModel, Sources]],
    batch_size: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Returns the target tokens per second of each task, EOS included.

    The tasks take turns, and the fastest round of each counts: other load affects all alike.
    """
    speeds = dict.fromkeys(tasks, 0.0)
    for _ in range(ROUNDS):
        for name, (model, sources) in tasks.items():
            started = clock()
            tokens = sum(len(item.target_ids) + 1 for item in translate_all(model, sources, batch_size))
            speeds[name] = max(speeds[name], tokens / (clock() - started))
    return speeds


def describe(config: object) -> str:
    """Returns the architecture in words, as in `recurrent, additive`."""
    if isinstance(config, RecurrentConfig):
        return f"recurrent, {config.attention.replace('_', ' ')}{', hard' if config.hard else ''}"
    if isinstance(config, TransformerConfig):
        return f"Transformer, {config.encoder_layers} + {config.decoder_layers} layers"
    raise TypeError(f"{config!r}: expected the configuration of a model")


def format_results(results: Sequence[Result], batch_size: int) -> str:
    """Returns a Markdown table with a row per model."""
    heading = ("run", "parameters", "BLEU", "chrF", f"tokens/s, batch {batch_size}", "tokens/s, batch 1")
    rows = []
    for result in results:
        scores, speeds = (result.bleu, result.chrf), (result.batched, result.single)
        figures = [f"{result.parameters:,}", *map("{:.1f}".format, scores), *map("{:,.0f}".format, speeds)]
        rows.append([result.name, *figures])
    models = [f"- {result.name}: {result.model}, {result.steps:,} training steps" for result in results]
    return "\n".join([markup_table(heading, rows), "", *models])


def draw_results(results: Sequence[Result], batch_size: int, path: Path) -> None:
    """Draws quality and speed as bars, side by side."""
    quality = {"BLEU": [result.bleu for result in results], "chrF": [result.chrf for result in results]}
    speed = {
        f"batch {batch_size}": [result.batched for result in results],
        "batch 1": [result.single for result in results],
    }
    groups = (("quality", "{:.1f}", quality), ("target tokens per second, greedy", "{:,.0f}", speed))
    with drawing(path, (10.0, 1.6 + 0.55 * len(results))) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for panel, (title, form, bars) in zip(panels, groups, strict=True):
            for (label, values), shift in zip(bars.items(), (-0.19, 0.19), strict=True):
                drawn = panel.barh([row + shift for row in range(len(results))], values, height=0.38, label=label)
                panel.bar_label(drawn, fmt=form, padding=2, fontsize=8)
            panel.set_title(title)
            panel.margins(x=0.14)
            panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
        panels[0].set_yticks(range(len(results)), [result.name for result in results], parse_math=False)
        panels[0].invert_yaxis()
