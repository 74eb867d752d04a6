"""`dragoman align`: links the words of sentence pairs by a model's attention, and measures the alignment error rate."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from dragoman.export.origin import read_origin
from dragoman.export.source_model import find_direction
from dragoman.model.alignment.links import ReferenceLinks, alignment_quality, format_links
from dragoman.model.attention_alignment import AlignedModel, BothWays, Head
from dragoman.model.data.corpus import Corpus, read_corpus, read_lines, read_links
from dragoman.model.errors import UsageError
from dragoman.model.output_file import check_output, write_output
from dragoman.model.text_table import format_table
from dragoman.model.tokenizer.tokenizer import Tokenizer

BEST_HEADS = 10
# Pairs on which the head of --both-ways is chosen.
COMPARED_PAIRS = 200


class AlignCommand(BaseSettings):
    """Links the words of sentence pairs by the cross-attention of one head.

    The model reads each source and its given translation. With reference links, prints the alignment error rate (Och
    and Ney 2003) of the best heads and takes the best one, unless --head names another. With --both-ways, keeps the
    links that the model also finds from target to source, and takes the head with the most of them. `dragoman train`
    reads the written links for guided alignment.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_ALIGN_", frozen=True, extra="forbid")

    run: CliPositionalArg[Path] = Field(description="training run (its best checkpoint) or bundle of one")
    data: str = Field(description="sentence pairs: multi30k:en-de, files:a.en,a.de, tsv:FILE or hf:NAME:en-de")
    split: Literal["train", "validation", "test"] = Field("train", description="part of the data set, if it has parts")
    multi30k_folder: Path | None = Field(None, description="folder of Multi30k; if omitted, $DRAGOMAN_MULTI30K")
    reference: Path | None = Field(None, description="links of the first pairs, made by hand: i-j sure, ipj possible")
    head: Annotated[str, StringConstraints(pattern=r"^\d{1,4}:\d{1,4}$")] | None = Field(
        None, description="cross-attention head, LAYER:HEAD from 0"
    )
    shift: bool = Field(False, description="link a token by the attention of the next step; with --head")
    both_ways: bool = Field(False, description="keep only links that the model also finds from target to source")
    output: Path | None = Field(None, description="file for the links, a line per pair without a blank side")

    def cli_cmd(self) -> None:
        """Measures and writes links."""
        chosen = self.reference is not None or self.both_ways
        if self.head is None and (self.shift or not chosen):
            raise UsageError("head: expected LAYER:HEAD, or --reference or --both-ways to choose one")
        if self.output is None and self.reference is None:
            raise UsageError("expected --output for links or --reference to measure them")
        check_output("align", "output", self.output)
        exportable, _ = read_origin(self.run)
        corpus = read_corpus(self.data, self.split, self.multi30k_folder)
        directions = [corpus.languages, corpus.languages[::-1]] if self.both_ways else [corpus.languages]
        prefixes = [find_direction(exportable, direction).source_prefix for direction in directions]
        references = None if self.reference is None else _read_references(self.reference, corpus)
        if not isinstance(exportable.tokenizer, Tokenizer):
            raise SystemExit(f"dragoman align: {self.run}: tokenizer: imported, expected that of a training run")
        models = [AlignedModel(exportable.network, exportable.tokenizer, prefix) for prefix in prefixes]
        aligned = BothWays(*models) if self.both_ways else models[0]
        heads = aligned.heads() if self.head is None else [self._head(self.head, aligned)]
        if references is None and self.head is None and isinstance(aligned, BothWays):
            heads = [aligned.best_head(corpus.select(range(min(COMPARED_PAIRS, len(corpus)))))]
        if references is not None:
            heads = _measure(aligned, corpus.select(range(len(references))), heads, references)
        if self.output is not None:
            self._write(self.output, aligned, corpus, heads[0])

    def _head(self, text: str, aligned: AlignedModel | BothWays) -> Head:
        layer, _, number = text.partition(":")
        head = Head(int(layer), int(number), self.shift)
        if head not in aligned.heads():
            raise SystemExit(f"dragoman align: head: {text}: expected at most {aligned.heads()[-1]}")
        return head

    def _write(self, path: Path, aligned: AlignedModel | BothWays, corpus: Corpus, head: Head) -> None:
        (links,) = aligned.links(corpus, [head])
        write_output(path, "".join(f"{format_links(link)}\n" for link in links))
        print(
            f"{path}: {sum(map(len, links)):,} links of {len(corpus):,} pairs, head {head}{' shifted' * head.shifted}"
        )


def _read_references(path: Path, corpus: Corpus) -> list[ReferenceLinks]:
    """Reads the links of the first pairs of a corpus, at least one."""
    first = min(len(read_lines(path)), len(corpus))
    return read_links(path, corpus.select(range(max(first, 1))))


def _measure(
    aligned: AlignedModel | BothWays, corpus: Corpus, heads: list[Head], references: list[ReferenceLinks]
) -> list[Head]:
    """Prints the quality of the best heads; returns all heads, best first."""
    found = aligned.links(corpus, heads)
    qualities = {head: alignment_quality(links, references) for head, links in zip(heads, found, strict=True)}
    ranked = sorted(heads, key=lambda head: qualities[head].error_rate)
    rows = [["head", "shifted", "AER", "precision", "recall"]]
    for head in ranked[:BEST_HEADS]:
        quality = qualities[head]
        shares = (quality.error_rate, quality.precision, quality.recall)
        rows.append([str(head), "yes" if head.shifted else "no", *(f"{share:.1%}" for share in shares)])
    print(format_table(rows, 2))
    return ranked
