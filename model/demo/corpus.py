"""The demo corpus: distinct sentence pairs, split into training, validation and test data, in text files.

Knows nothing of grammar. The command `dragoman corpus` writes `train.en`, `train.de` and so on, one sentence per line:
the same bytes for the same options on every machine.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from tqdm import tqdm

from model.demo.grammar import Grammar
from model.demo.lexicon import Pair


def distinct_pairs(seed: int) -> Iterator[Pair]:
    """Yields pairs without end, none of whose sentences, English or German, has occurred before.

    One set suffices: the grammar is a function, so that two pairs with different German differ in English too.
    """
    grammar = Grammar(seed)
    seen: set[str] = set()
    while True:
        pair = grammar.sentence()
        if pair.german not in seen:
            seen.add(pair.german)
            yield pair


def write_corpus(out: Path, seed: int, sizes: dict[str, int]) -> None:
    """Writes `sizes[split]` pairs to `<split>.en` and `<split>.de` for every split, in the order of `sizes`.

    The files appear in `out` only when all of them are complete. Raises OSError if they cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    pairs = distinct_pairs(seed)
    with TemporaryDirectory(dir=out, prefix=".corpus-") as folder:
        staging = Path(folder)
        for split, size in sizes.items():
            _write_split(staging / split, tqdm(islice(pairs, size), split, size, unit=" pairs"))
        for file in staging.iterdir():
            file.replace(out / file.name)


def _write_split(stem: Path, pairs: Iterable[Pair]) -> None:
    with (
        stem.with_suffix(".en").open("w", encoding="utf-8", newline="\n") as english,
        stem.with_suffix(".de").open("w", encoding="utf-8", newline="\n") as german,
    ):
        for pair in pairs:
            english.write(f"{pair.english}\n")
            german.write(f"{pair.german}\n")


class CorpusCommand(BaseSettings):
    """Writes the demo corpus: English sentences with German translations, made by a grammar; nothing is downloaded."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_CORPUS_", frozen=True, extra="forbid")

    out: Path = Field(description="the folder to write train, validation and test files (.en, .de) to")
    seed: int = Field(7, description="the sentences belong to this number: same seed, same corpus")
    train_pairs: int = Field(1_000_000, ge=0, description="sentence pairs to train on")
    validation_pairs: int = Field(1_000, ge=0, description="sentence pairs to watch while training")
    test_pairs: int = Field(1_000, ge=0, description="sentence pairs to measure with")

    def cli_cmd(self) -> None:
        """Writes the files."""
        if self.out.exists() and not self.out.is_dir():
            raise SystemExit(f"dragoman corpus: out: {self.out}: expected a folder")
        # The held-out pairs come first, so that they stay the same for every size of the training data.
        write_corpus(
            self.out,
            self.seed,
            {"test": self.test_pairs, "validation": self.validation_pairs, "train": self.train_pairs},
        )
