"""The three sections of the report on attention: what layers cost, where models look, how good and fast they are.

Each is measured and drawn by one function. Called by `dragoman attention`, which knows the options and the runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from examples.attention.attention_maps import AttentionMaps
from examples.attention.cost_plots import draw_costs
from examples.attention.cost_table import format_costs
from examples.attention.costs import measure_layers
from examples.attention.decoding_speed import Task, measure_speeds
from examples.attention.map_plots import draw_heads, draw_summaries
from examples.attention.run_scores import Scores
from examples.attention.runs import RunResult, describe, draw_results, format_results
from model.run import TrainedModel

# Names of the sections, and of their places in a document.
LAYERS, MAPS, TABLE = "layers", "maps", "table"


@dataclass(frozen=True, slots=True)
class Picture:
    """A file that was drawn, and what it shows."""

    file: str
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """What one part of the report found.

    Attributes:
        name: of its place in a document.
        pictures: in the order in which they are to be seen.
        table: Markdown; empty if there is none.
        figures: all that was measured, one record for each thing measured.
    """

    name: str
    pictures: list[Picture]
    table: str
    figures: list[dict[str, object]]

    def to_markdown(self, folder: str) -> str:
        """Returns the section as text that links to the pictures in a folder, as seen from the text's own."""
        shown = [f"{picture.caption}\n\n![]({folder}/{picture.file})" for picture in self.pictures]
        return "\n\n".join([*shown, *([self.table] if self.table else [])])


@dataclass(frozen=True, slots=True)
class MappedPair:
    """A sentence, its translation, and where the runs look, by their names; `number` counts from 1."""

    number: int
    source: str
    target: str
    maps: Mapping[str, AttentionMaps]


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run with its scores on the test set, if they were measured."""

    name: str
    trained: TrainedModel
    scores: Scores | None


def measure_layer_section(lengths: Sequence[int], width: int, out: Path) -> Section:
    """Measures every kind of layer at every length."""
    costs = list(measure_layers(lengths, width))
    draw_costs(costs, out / "layers.svg")
    picture = Picture("layers.svg", f"One layer of width {width} over the length of one sequence:")
    return Section(LAYERS, [picture], format_costs(costs), [asdict(cost) for cost in costs])


def draw_map_section(pairs: Sequence[MappedPair], out: Path) -> Section:
    """Draws the maps of every pair, and of the first one all heads of the models that have several."""
    pictures = []
    for pair in pairs:
        pictures.append(Picture(f"maps-{pair.number}.svg", f"Pair {pair.number}: {pair.source} / {pair.target}"))
        draw_summaries(pair.maps, out / pictures[-1].file)
    for name, maps in pairs[0].maps.items():
        if maps.layers.shape[1] > 1:
            pictures.append(Picture(f"heads-{name}.svg", f"Every head of `{name}`, pair {pairs[0].number}:"))
            draw_heads(maps, out / pictures[-1].file)
    shown: list[dict[str, object]] = [
        {"number": pair.number, "source": pair.source, "target": pair.target} for pair in pairs
    ]
    return Section(MAPS, pictures, "", shown)


def measure_table_section(
    runs: Sequence[ComparedRun], sources: Mapping[str, Sequence[Sequence[int]]], batch_size: int, out: Path
) -> Section:
    """Measures the speed of every run, and puts size and quality beside it.

    Args:
        runs: what is compared.
        sources: for each run by its name, ids of the sentences that are translated, each ending in EOS.
        batch_size: sources translated at a time, beside one at a time.
        out: folder of the pictures.
    """
    tasks = {run.name: Task(run.trained.model, sources[run.name]) for run in runs}
    batched, single = measure_speeds(tasks, batch_size), measure_speeds(tasks, 1)
    results = [
        RunResult(
            run.name,
            describe(run.trained.config.model),
            sum(parameter.numel() for parameter in run.trained.model.parameters()),
            run.trained.steps,
            run.scores,
            batch_size,
            batched[run.name],
            single[run.name],
        )
        for run in runs
    ]
    draw_results(results, out / "runs.svg")
    picture = Picture("runs.svg", "Quality and speed:")
    return Section(TABLE, [picture], format_results(results), [_to_record(result) for result in results])


def _to_record(result: RunResult) -> dict[str, object]:
    scores = None if result.scores is None else result.scores.model_dump()
    return {**asdict(result), "scores": scores}
