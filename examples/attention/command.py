"""`dragoman attention`: attention maps of models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from dragoman.export.origin import read_origin
from dragoman.export.source_model import Exportable
from dragoman.model.data.corpus import Corpus, CorpusError, read_corpus
from dragoman.model.errors import RunError
from dragoman.model.run import write_whole
from dragoman.model.tokenizer.tokenizer import TokenizerError
from examples.attention.maps import AttentionMaps, draw_heads, draw_summaries, force_maps

SHIPPED = Path(__file__).parents[2] / "bundles" / "multi30k-en-de"
# Pairs of Multi30k's test set with a different word order in German: a verb-final clause and two verbs' particles.
SENTENCES = [13, 89, 943]


class AttentionCommand(BaseSettings):
    """Compare kinds of attention by their maps.

    Writes into a folder: maps-N.svg, the attention of each model on the reference translation of sentence N;
    heads-MODEL.svg, every head of every layer at the first sentence; report.md with all pictures.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_ATTENTION_", frozen=True, extra="forbid")

    models: CliPositionalArg[list[Path]] = Field([SHIPPED], description="folders of training runs or bundles")
    out: Path = Field(Path("build/attention"), description="folder for the pictures and the report")
    data: str = Field("multi30k:en-de", description="sentence pairs as in `dragoman train --data`")
    split: Literal["train", "validation", "test"] = Field("test", description="part of the data set, if it has parts")
    multi30k_folder: Path | None = Field(None, description="folder of Multi30k; default: $DRAGOMAN_MULTI30K")
    sentence: list[int] = Field(SENTENCES, min_length=1, description="numbers of the pairs to map, from 1")

    def cli_cmd(self) -> None:
        """Draws the maps and writes the report."""
        try:
            corpus = read_corpus(self.data, self.split, self.multi30k_folder)
            models = self._read_models()
            maps = {number: _force(models, corpus, number) for number in self.sentence}
        except (CorpusError, RunError, TokenizerError) as error:
            raise SystemExit(f"dragoman attention: {error}") from error
        self.out.mkdir(parents=True, exist_ok=True)
        report = "\n\n".join(["# Kinds of attention", *self._draw_maps(maps, corpus)])
        write_whole(self.out / "report.md", f"{report}\n".encode())
        print(self.out / "report.md")

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


def _force(models: dict[str, Exportable], corpus: Corpus, number: int) -> dict[str, AttentionMaps]:
    if not 1 <= number <= len(corpus):
        raise CorpusError(f"sentence: {number}: expected 1 to {len(corpus)}")
    pair = corpus.direction, corpus.sources[number - 1], corpus.targets[number - 1]
    return {name: force_maps(model, *pair) for name, model in models.items()}
