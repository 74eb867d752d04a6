"""`dragoman data`: what is in parallel text, as two tables: pairs that are left out and why, and lengths of both sides.

`dragoman train` prints the same when it starts.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from model.cleaning import CleanedCorpus, Reason, clean
from model.config import CleaningConfig
from model.corpus import SPECIFICATIONS, CorpusError, Specifications, read_corpora
from model.tokenizer import UNK_ID, Tokenizer, TokenizerError


class DataCommand(BaseSettings):
    """Prints what is in parallel text: pairs, what cleaning leaves out of them, lengths, vocabulary coverage."""

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_DATA_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        nested_model_default_partial_update=True,
    )

    data: CliPositionalArg[Specifications] = Field(min_length=1, description=f"sentence pairs: {SPECIFICATIONS}")
    split: Literal["train", "validation", "test"] = Field(
        "train", description="part of a data set that has parts; only train is cleaned"
    )
    multi30k_folder: Path | None = Field(None, description="where Multi30k is; default: $DRAGOMAN_MULTI30K")
    tokenizer: Path | None = Field(None, description="tokenizer.model of a run: counts tokens and unknown ones too")
    cleaning: CleaningConfig = Field(CleaningConfig(), description="which pairs are left out of training data")

    def cli_cmd(self) -> None:
        """Prints the tables."""
        try:
            tokenizer = Tokenizer.load(self.tokenizer) if self.tokenizer else None
            corpora = read_corpora(self.data, self.split, self.multi30k_folder)
            cleaned = [
                clean(corpus, self.cleaning)
                if self.split == "train"
                else CleanedCorpus(corpus, {**dict.fromkeys(Reason, 0), Reason.BLANK: corpus.blank_pairs})
                for corpus in corpora
            ]
        except CorpusError as error:
            raise SystemExit(f"dragoman data: {error}") from error
        except (OSError, TokenizerError) as error:
            raise SystemExit(f"dragoman data: tokenizer: {self.tokenizer}: {error}") from error
        print(describe_corpora(cleaned, tokenizer))


def describe_corpora(corpora: Sequence[CleanedCorpus], tokenizer: Tokenizer | None = None) -> str:
    """Returns two tables and, given a tokenizer, how much of its vocabulary occurs.

    The first has a row per direction: pairs read, left out for each reason, and left. The second has two rows per
    direction, source and target: characters in all, and their mean, 95th percentile and maximum per line; with a
    tokenizer the same in tokens, and the share of unknown ones.
    """
    pairs = [["direction", "read", *Reason, "pairs"]]
    lengths = [["direction", "side", "characters", "mean", "95 %", "longest"]]
    if tokenizer:
        lengths[0] += ["tokens", "mean", "95 %", "longest", "unknown"]
    used: set[int] = set()
    for cleaned in corpora:
        corpus = cleaned.corpus
        direction = str(corpus.direction)
        counts = (cleaned.read, *(cleaned.dropped[reason] for reason in Reason), len(corpus))
        pairs.append([direction, *(f"{count:,}" for count in counts)])
        for language, lines in zip(corpus.languages, (corpus.sources, corpus.targets), strict=True):
            row = [direction, language, *_length_cells(map(len, lines))]
            if tokenizer:
                ids = tokenizer.encode_lines(lines)
                tokens = np.fromiter(chain.from_iterable(ids), np.int64)
                row += [*_length_cells(map(len, ids)), f"{np.mean(tokens == UNK_ID):.2%}"]
                used.update(np.unique(tokens).tolist())
            lengths.append(row)
    parts = [_format_table(pairs, 1), _format_table(lengths, 2)]
    if tokenizer:
        size = tokenizer.vocabulary_size
        parts.append(f"{len(used):,} of the {size:,} tokens of the vocabulary occur ({len(used) / size:.1%})")
    return "\n\n".join(parts)


def _length_cells(lengths: Iterable[int]) -> list[str]:
    values = np.fromiter(lengths, np.int64)
    return [
        f"{values.sum():,}",
        f"{values.mean():.1f}",
        f"{np.percentile(values, 95, method='higher'):,}",
        f"{values.max():,}",
    ]


def _format_table(rows: Sequence[Sequence[str]], names: int) -> str:
    """Returns rows as lines; the first `names` columns are flush left, numbers flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index < names else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
