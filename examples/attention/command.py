"""`dragoman attention`: attention maps, costs of layers, and quality and speed of models."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from dragoman.export.origin import read_origin
from dragoman.export.source_model import Exportable
from dragoman.model.data.corpus import Corpus, CorpusError, read_corpus
from dragoman.model.errors import RunError
from dragoman.model.provenance import Provenance, command_line
from dragoman.model.run import write_whole
from examples.attention.layers import draw_costs, format_costs, measure_layers
from examples.attention.maps import AttentionMaps, draw_heads, draw_summaries, force_maps
from examples.attention.quality import compare, draw_results, format_results, readable_pairs

MIN_LENGTH = 8
SHIPPED = Path(__file__).parents[2] / "bundles" / "multi30k-en-de"
# Pairs of Multi30k's test set with a different word order in German: a verb-final clause and two verbs' particles.
SENTENCES = [13, 89, 943]


class AttentionCommand(BaseSettings):
    """Compare kinds of attention: attention maps, costs of layers, quality and speed.

    Writes into a folder: layers.svg, costs of layers over the length of the sequence, compared with the orders of
    Vaswani et al. 2017; maps-N.svg, the attention of each model on the reference translation of sentence N;
    heads-MODEL.svg, every head of every layer at the first sentence; quality.svg, quality and speed of the models;
    report.md with all pictures and tables; measurements.json with all figures.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_ATTENTION_", frozen=True, extra="forbid")

    models: CliPositionalArg[list[Path]] = Field([SHIPPED], description="folders of training runs or bundles")
    out: Path = Field(Path("build/attention"), description="folder for pictures, tables and figures")
    data: str = Field("multi30k:en-de", description="sentence pairs as in `dragoman train --data`")
    split: Literal["train", "validation", "test"] = Field("test", description="part of the data set, if it has parts")
    multi30k_folder: Path | None = Field(None, description="folder of Multi30k; default: $DRAGOMAN_MULTI30K")
    sentence: list[int] = Field(SENTENCES, min_length=1, description="numbers of the pairs to map, from 1")
    timed_sentences: int = Field(50, gt=0, description="number of sources for the speed")
    batch_size: int = Field(64, gt=1, description="sources in a batch, compared with one at a time")
    width: int = Field(128, gt=0, multiple_of=8, description="width of the measured layers")
    longest: int = Field(512, ge=2 * MIN_LENGTH, description="maximum length of the measured layers")

    def cli_cmd(self) -> None:
        """Runs the comparison."""
        corpus = read_corpus(self.data, self.split, self.multi30k_folder)
        models = self._read_models()
        readable = readable_pairs(models, corpus)
        maps = {number: _force(models, corpus, number) for number in self.sentence}
        self.out.mkdir(parents=True, exist_ok=True)
        print("drawing maps", flush=True)
        sections = list(self._draw_maps(maps, corpus))
        print("measuring layers", flush=True)
        lengths = [2**power for power in range(MIN_LENGTH.bit_length() - 1, self.longest.bit_length())]
        costs = list(measure_layers(lengths, self.width))
        draw_costs(costs, self.out / "layers.svg")
        print("translating", flush=True)
        results = compare(models, readable, self.batch_size, self.timed_sentences)
        draw_results(results, self.batch_size, self.out / "quality.svg")
        sections.append(f"## Cost of a layer\n\n![](layers.svg)\n\n{format_costs(costs)}")
        sections.append(f"## Quality and speed\n\n![](quality.svg)\n\n{format_results(results, self.batch_size)}")
        self._write(sections, layers=[asdict(cost) for cost in costs], models=[asdict(result) for result in results])

    def _read_models(self) -> dict[str, Exportable]:
        names = [path.resolve().name for path in self.models]
        if len(set(names)) < len(names):
            raise RunError(f"models: {', '.join(names)}: expected different folder names")
        return {name: read_origin(path)[0] for name, path in zip(names, self.models, strict=True)}

    def _draw_maps(self, maps: dict[int, dict[str, AttentionMaps]], corpus: Corpus) -> Iterator[str]:
        """Yields a section of the report per picture."""
        for number, of_models in maps.items():
            draw_summaries(of_models, self.out / f"maps-{number}.svg")
            pair = f"{corpus.sources[number - 1]} / {corpus.targets[number - 1]}"
            yield f"## Sentence {number}\n\n{pair}\n\n![](maps-{number}.svg)"
        for name, first in maps[self.sentence[0]].items():
            if first.layers.shape[:2] != (1, 1):
                draw_heads(first, self.out / f"heads-{name}.svg")
                yield f"## Every head of {name}, sentence {self.sentence[0]}\n\n![](heads-{name}.svg)"

    def _write(self, sections: list[str], **figures: object) -> None:
        threads = f"PyTorch threads: {torch.get_num_threads()}"
        provenance = Provenance.now(command_line("attention", self, "models"), ("torch", "matplotlib"), threads)
        report = "\n\n".join(["# Kinds of attention", *sections, str(provenance)])
        write_whole(self.out / "report.md", f"{report}\n".encode())
        document = json.dumps({"provenance": asdict(provenance), **figures}, indent=1, ensure_ascii=False)
        write_whole(self.out / "measurements.json", f"{document}\n".encode())


def _force(models: dict[str, Exportable], corpus: Corpus, number: int) -> dict[str, AttentionMaps]:
    if not 1 <= number <= len(corpus):
        raise CorpusError(f"sentence: {number}: expected 1 to {len(corpus)}")
    pair = corpus.direction, corpus.sources[number - 1], corpus.targets[number - 1]
    return {name: force_maps(model, *pair) for name, model in models.items()}
