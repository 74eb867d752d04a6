"""`dragoman attention`: where models look, what kinds of layers cost, and how well and how fast the models translate.

All tables and pictures of `docs/attention.md` are made here, by one call.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from os.path import relpath
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from examples.attention.attention_maps import SentenceTooLongError, force_maps
from examples.attention.report_sections import (
    LAYERS,
    MAPS,
    TABLE,
    ComparedRun,
    MappedPair,
    Section,
    draw_map_section,
    measure_layer_section,
    measure_table_section,
)
from examples.attention.run_scores import Scores, ScoresError, read_scores
from model.config import Direction
from model.data.corpus import Corpus, CorpusError, read_corpus
from model.marked_text import MarkError, fill
from model.provenance import Provenance, command_line
from model.run import RunError, RunFolder, write_whole

SHORTEST = 8
LIBRARIES = ("torch", "matplotlib")
# Pairs of Multi30k whose German words stand in another order: a verb's particle at the end, a clause with its verb at
# the end, and two objects changed round.
SENTENCES = [7, 158, 501]


class AttentionCommand(BaseSettings):
    """Compares kinds of attention: where models look, what layers cost, quality and speed.

    Writes into a folder: layers.svg, costs of layers over the length of the sequence, measured beside the orders of
    Vaswani et al. 2017; for each sentence maps-N.svg, where each run looks while it writes the reference translation;
    for each run with several heads heads-RUN.svg, every head at the first sentence; runs.svg, the runs' quality and
    speed; layers.md, maps.md and table.md, which show these with tables; and measurements.json with all figures.
    Without a run, the layers alone are measured.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_ATTENTION_", frozen=True, extra="forbid")

    runs: CliPositionalArg[list[Path]] = Field([], description="folders made by `dragoman train`")
    out: Path = Field(description="folder that gets pictures, tables and figures")
    document: Path | None = Field(
        None, description="Markdown file whose places <!-- layers -->, <!-- maps --> and <!-- table --> are filled in"
    )
    scores: Path | None = Field(None, description="folder with RUN.json, written by `dragoman evaluate RUN --json`")
    data: str = Field("multi30k:en-de", description="sentence pairs, as in `dragoman train --data`")
    split: Literal["train", "validation", "test"] = Field("validation", description="part of a data set that has parts")
    multi30k_folder: Path | None = Field(None, description="where Multi30k is; default: $DRAGOMAN_MULTI30K")
    sentence: list[int] = Field(SENTENCES, min_length=1, description="number of a pair to draw maps of, from 1")
    timed_sentences: int = Field(200, gt=0, description="how many sources are translated to measure the speed")
    batch_size: int = Field(64, gt=1, description="sources translated at a time, beside one at a time")
    width: int = Field(128, gt=0, multiple_of=8, description="width of the layers that are measured")
    longest: int = Field(512, ge=2 * SHORTEST, description="greatest length that layers are measured at")

    def cli_cmd(self) -> None:
        """Measures and draws everything."""
        try:
            self._report()
        except (CorpusError, RunError, ScoresError) as error:
            raise SystemExit(f"dragoman attention: {error}") from error

    def _report(self) -> None:
        # What may be wrong is found out before minutes of measuring.
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
            raise SystemExit(f"dragoman attention: runs: {', '.join(names)}: expected folders of different names")
        runs = []
        for name, path in zip(names, self.runs, strict=True):
            trained = RunFolder(path).load()
            if direction not in trained.config.directions:
                translated = ", ".join(map(str, trained.config.directions))
                raise RunError(f"{path}: translates {translated}, expected {direction} as in data")
            runs.append(ComparedRun(name, trained, self._read_scores(name, direction)))
        return runs

    def _read_scores(self, name: str, direction: Direction) -> Scores | None:
        return None if self.scores is None else read_scores(self.scores / f"{name}.json", direction)

    def _force_maps(self, runs: Sequence[ComparedRun], corpus: Corpus) -> list[MappedPair]:
        pairs = []
        for number in self.sentence:
            if not 1 <= number <= len(corpus):
                raise SystemExit(f"dragoman attention: sentence: {number}: expected 1 to {len(corpus)}, as data has")
            source, target = corpus.sources[number - 1], corpus.targets[number - 1]
            try:
                maps = {run.name: force_maps(run.trained, corpus.direction, source, target) for run in runs}
            except SentenceTooLongError as error:
                raise SystemExit(f"dragoman attention: sentence: {number}: {error}") from error
            pairs.append(MappedPair(number, source, target, maps))
        return pairs

    def _sources(self, runs: Sequence[ComparedRun], corpus: Corpus) -> dict[str, list[list[int]]]:
        """Returns the ids of the first sentences that all runs can read, as each run reads them."""
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
        """Returns the document with its places filled in."""
        if self.document is None:
            return ""
        try:
            text = self.document.read_text(encoding="utf-8")
            for name, content in places.items():
                text = fill(text, name, content)
        except (OSError, MarkError) as error:
            raise SystemExit(f"dragoman attention: document: {self.document}: {error}") from error
        return text
