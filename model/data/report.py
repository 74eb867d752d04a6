"""`dragoman data`: statistics of parallel text, in two tables: removed pairs by reason, and lengths of both sides."""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from dragoman.model.config import CleaningConfig
from dragoman.model.data.batches import TokenizedPairs
from dragoman.model.data.cleaning import CleanedCorpus, Reason, clean
from dragoman.model.data.corpus import Specifications, read_corpora
from dragoman.model.data.segmentation import encode_corpus
from dragoman.model.errors import reason_of
from dragoman.model.text_table import format_table
from dragoman.model.tokenizer.tokenizer import UNK_ID, Tokenizer, TokenizerError


class DataCommand(BaseSettings):
    """Prints statistics of parallel text: pairs, pairs removed by cleaning, lengths, vocabulary coverage."""

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_DATA_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        nested_model_default_partial_update=True,
    )

    data: CliPositionalArg[Specifications] = Field(
        min_length=1, description="sentence pairs: multi30k:en-de, files:a.en,a.de, tsv:FILE or hf:NAME:en-de"
    )
    split: Literal["train", "validation", "test"] = Field(
        "train", description="part of a data set with parts; only train is cleaned"
    )
    multi30k_folder: Path | None = Field(None, description="folder of the Multi30k files; else $DRAGOMAN_MULTI30K")
    tokenizer: Path | None = Field(None, description="tokenizer.model of a run; adds token counts and unknown tokens")
    cleaning: CleaningConfig = Field(CleaningConfig(), description="which training pairs are removed")

    def cli_cmd(self) -> None:
        """Prints the tables."""
        try:
            tokenizer = Tokenizer.load(self.tokenizer) if self.tokenizer else None
        except (OSError, TokenizerError) as error:
            raise SystemExit(f"dragoman data: tokenizer: {self.tokenizer}: {reason_of(error)}") from error
        cleaned = [
            clean(corpus, self.cleaning)
            if self.split == "train"
            else CleanedCorpus(corpus, {**dict.fromkeys(Reason, 0), Reason.BLANK: corpus.blank_pairs})
            for corpus in read_corpora(self.data, self.split, self.multi30k_folder)
        ]
        if tokenizer:
            encoded = [encode_corpus(part.corpus, tokenizer) for part in cleaned]
            print(describe_corpora(cleaned, encoded, tokenizer.vocabulary_size))
        else:
            print(describe_corpora(cleaned))


def describe_corpora(
    corpora: Sequence[CleanedCorpus], encoded: Sequence[TokenizedPairs] = (), vocabulary_size: int = 0
) -> str:
    """Returns two tables and, with encoded corpora, the share of the vocabulary that occurs.

    The first table has a row per direction: pairs read, removed for each reason, and left. The second has two rows per
    direction, source and target: total characters, and mean, 95th percentile and maximum per line. Encoded corpora add
    the same in tokens and the share of unknown ones.
    """
    tables = [format_table(_pair_rows(corpora), 1), format_table(_length_rows(corpora, encoded), 2)]
    if encoded:
        sides = (side for pairs in encoded for side in (pairs.sources, pairs.targets))
        used = len(set(chain.from_iterable(chain.from_iterable(sides))))
        share = used / vocabulary_size
        tables.append(f"{used:,} of the {vocabulary_size:,} tokens of the vocabulary occur ({share:.1%})")
    return "\n\n".join(tables)


def _pair_rows(corpora: Sequence[CleanedCorpus]) -> list[list[str]]:
    rows = [["direction", "read", *Reason, "pairs"]]
    for cleaned in corpora:
        counts = (cleaned.read, *(cleaned.dropped[reason] for reason in Reason), len(cleaned.corpus))
        rows.append([str(cleaned.corpus.direction), *(f"{count:,}" for count in counts)])
    return rows


def _length_rows(corpora: Sequence[CleanedCorpus], encoded: Sequence[TokenizedPairs]) -> list[list[str]]:
    rows = [["direction", "side", "characters", "mean", "95 %", "longest"]]
    texts = [side for part in corpora for side in (part.corpus.sources, part.corpus.targets)]
    languages = [(str(part.corpus.direction), language) for part in corpora for language in part.corpus.languages]
    rows += [[*language, *_length_cells(map(len, lines))] for language, lines in zip(languages, texts, strict=True)]
    if encoded:
        rows[0] += ["tokens", "mean", "95 %", "longest", "unknown"]
        sides = [side for pairs in encoded for side in (pairs.sources, pairs.targets)]
        for row, side in zip(rows[1:], sides, strict=True):
            unknown = np.mean(np.fromiter(chain.from_iterable(side), np.int64) == UNK_ID)
            row += [*_length_cells(map(len, side)), f"{unknown:.2%}"]
    return rows


def _length_cells(lengths: Iterable[int]) -> list[str]:
    values = np.fromiter(lengths, np.int64)
    return [
        f"{values.sum():,}",
        f"{values.mean():.1f}",
        f"{np.percentile(values, 95, method='higher'):,}",
        f"{values.max():,}",
    ]
