"""`dragoman attention`: attention maps, costs of layers, and quality and speed of models, as tables and figures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os.path import relpath
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from examples.attention.costs import draw_costs, format_costs, measure_layers
from examples.attention.runs import (
    AttentionMaps,
    RunResult,
    Scores,
    ScoresError,
    SentenceTooLongError,
    Task,
    describe,
    draw_heads,
    draw_results,
    draw_summaries,
    force_maps,
    format_results,
    measure_speeds,
    read_scores,
)
from model.config import Direction
from model.data.corpus import Corpus, CorpusError, read_corpus
from model.provenance import MarkError, Provenance, command_line, fill
from model.run import RunError, RunFolder, TrainedModel, write_whole

# Names of the sections in files and documents.
LAYERS, MAPS, TABLE = "layers", "maps", "table"


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn file with its caption."""

    file: str
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the report, named as its place in a document; `table` may be empty."""

    name: str
    pictures: list[Picture]
    table: str
    figures: list[dict[str, object]]

    def to_markdown(self, folder: str) -> str:
        """Returns the section as Markdown; `folder` is the path from the text to the pictures."""
        shown = [f"{picture.caption}\n\n![]({folder}/{picture.file})" for picture in self.pictures]
        return "\n\n".join([*shown, *([self.table] if self.table else [])])


@dataclass(frozen=True, slots=True)
class MappedPair:
    """A sentence pair with the attention maps of each run by name; `number` counts from 1."""

    number: int
    source: str
    target: str
    maps: Mapping[str, AttentionMaps]


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run with its scores on the test set, if measured."""

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
    """Draws the maps of every pair, and all heads of multi-head models for the first pair."""
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
    """Measures the speed of every run on its source ids, and lists it with size and quality."""
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


SHORTEST = 8
LIBRARIES = ("torch", "matplotlib")
# Pairs of Multi30k with a different word order in German: a verb's particle at the end, a verb-final clause, and two
# objects swapped.
SENTENCES = [7, 158, 501]


class AttentionCommand(BaseSettings):
    """Compares kinds of attention: attention maps, costs of layers, quality and speed.

    Writes into a folder: layers.svg, costs of layers over the length of the sequence, compared with the orders of
    Vaswani et al. 2017; maps-N.svg, the attention of each run on the reference translation of sentence N;
    heads-RUN.svg, every head of a multi-head run at the first sentence; runs.svg, quality and speed of the runs;
    layers.md, maps.md and table.md with tables; measurements.json with all figures. Without a run, only layers are
    measured.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_ATTENTION_", frozen=True, extra="forbid")

    runs: CliPositionalArg[list[Path]] = Field([], description="run folders made by `dragoman train`")
    out: Path = Field(description="folder for pictures, tables and figures")
    document: Path | None = Field(
        None, description="Markdown file; fills in <!-- layers -->, <!-- maps -->, <!-- table -->"
    )
    scores: Path | None = Field(None, description="folder with RUN.json per run, from `dragoman evaluate RUN --json`")
    data: str = Field("multi30k:en-de", description="sentence pairs as in `dragoman train --data`")
    split: Literal["train", "validation", "test"] = Field(
        "validation", description="part of the data set, if it has parts"
    )
    multi30k_folder: Path | None = Field(None, description="folder of Multi30k; default: $DRAGOMAN_MULTI30K")
    sentence: list[int] = Field(SENTENCES, min_length=1, description="numbers of the pairs to map, from 1")
    timed_sentences: int = Field(200, gt=0, description="number of sources for the speed")
    batch_size: int = Field(64, gt=1, description="sources in a batch, compared with one at a time")
    width: int = Field(128, gt=0, multiple_of=8, description="width of the measured layers")
    longest: int = Field(512, ge=2 * SHORTEST, description="maximum length of the measured layers")

    def cli_cmd(self) -> None:
        """Runs the comparison."""
        try:
            self._report()
        except (CorpusError, RunError, ScoresError) as error:
            raise SystemExit(f"dragoman attention: {error}") from error

    def _report(self) -> None:
        # Report invalid input before minutes of measuring.
        self._fill_document(dict.fromkeys((LAYERS, MAPS, TABLE)[: 3 if self.runs else 1], ""))
        corpus = read_corpus(self.data, self.split, self.multi30k_folder) if self.runs else None
        runs = self._load_runs(corpus) if corpus else []
        pairs = self._force_maps(runs, corpus) if corpus else []
        self.out.mkdir(parents=True, exist_ok=True)
        command = command_line("attention", self, positional="runs")
        provenance = Provenance.now(command, LIBRARIES, f"PyTorch threads: {torch.get_num_threads()}")
        print("measuring layers", flush=True)
        sections = [measure_layer_section(self._lengths(), self.width, self.out)]
        if corpus:
            print("drawing maps, translating", flush=True)
            sections.append(draw_map_section(pairs, self.out))
            sections.append(measure_table_section(runs, self._sources(runs, corpus), self.batch_size, self.out))
        self._write(sections, provenance)

    def _load_runs(self, corpus: Corpus) -> list[ComparedRun]:
        direction = corpus.direction
        names = [path.resolve().name for path in self.runs]
        if len(set(names)) < len(names):
            raise SystemExit(f"dragoman attention: runs: {', '.join(names)}: expected different folder names")
        runs = []
        for name, path in zip(names, self.runs, strict=True):
            trained = RunFolder(path).load()
            if direction not in trained.config.directions:
                translated = ", ".join(map(str, trained.config.directions))
                raise RunError(f"{path}: {translated}: expected {direction}, the direction of the data")
            runs.append(ComparedRun(name, trained, self._read_scores(name, direction)))
        return runs

    def _read_scores(self, name: str, direction: Direction) -> Scores | None:
        return None if self.scores is None else read_scores(self.scores / f"{name}.json", direction)

    def _force_maps(self, runs: Sequence[ComparedRun], corpus: Corpus) -> list[MappedPair]:
        pairs = []
        for number in self.sentence:
            if not 1 <= number <= len(corpus):
                raise SystemExit(f"dragoman attention: sentence: {number}: expected 1 to {len(corpus)}")
            source, target = corpus.sources[number - 1], corpus.targets[number - 1]
            try:
                maps = {run.name: force_maps(run.trained, corpus.direction, source, target) for run in runs}
            except SentenceTooLongError as error:
                raise SystemExit(f"dragoman attention: sentence: {number}: {error}") from error
            pairs.append(MappedPair(number, source, target, maps))
        return pairs

    def _sources(self, runs: Sequence[ComparedRun], corpus: Corpus) -> dict[str, list[list[int]]]:
        """Returns the ids of the first sentences that all runs can read, for each run."""
        ids = {run.name: run.trained.source_ids(corpus.direction, corpus.sources) for run in runs}
        limits = {run.name: run.trained.config.model.max_source_tokens for run in runs}
        read = [i for i in range(len(corpus)) if all(len(ids[name][i]) <= limits[name] for name in ids)]
        return {name: [sources[i] for i in read[: self.timed_sentences]] for name, sources in ids.items()}

    def _lengths(self) -> list[int]:
        return [2**power for power in range(SHORTEST.bit_length() - 1, self.longest.bit_length())]

    def _write(self, sections: Sequence[Section], provenance: Provenance) -> None:
        for section in sections:
            text = f"{section.to_markdown('.')}\n\n{provenance}\n"
            write_whole(self.out / f"{section.name}.md", text.encode())
        figures = {section.name: section.figures for section in sections}
        document = json.dumps({"provenance": asdict(provenance), **figures}, indent=1, ensure_ascii=False)
        write_whole(self.out / "measurements.json", f"{document}\n".encode())
        if self.document is not None:
            folder = Path(relpath(self.out, self.document.parent)).as_posix()
            places = {section.name: f"{section.to_markdown(folder)}\n\n{provenance}" for section in sections}
            write_whole(self.document, self._fill_document(places).encode())

    def _fill_document(self, places: dict[str, str]) -> str:
        """Returns the document with its sections filled in."""
        if self.document is None:
            return ""
        try:
            text = self.document.read_text(encoding="utf-8")
            for name, content in places.items():
                text = fill(text, name, content)
        except (OSError, MarkError) as error:
            raise SystemExit(f"dragoman attention: document: {self.document}: {error}") from error
        return text
