"""`dragoman corpus included`: writes the training and held-out text of the included model."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from tqdm import tqdm

from dragoman.model.data.sources.cleaning import Reason
from dragoman.model.data.sources.corpus import SourceText, parts_of, read_source
from dragoman.model.data.sources.licenses import is_permissive, license_of_mixture
from dragoman.model.data.sources.source_list import Source, load_sources
from dragoman.model.errors import CorpusError
from dragoman.model.text_table import format_table

INCLUDED = "included"
# What was read, for the model card.
MANIFEST = "sources.yaml"


def _split_at_commas(value: object) -> object:
    return value.split(",") if isinstance(value, str) else value


class IncludedCorpusCommand(BaseSettings):
    """Writes the text of the included model: messages and help of free programs, and everyday sentences.

    Packages are read from a folder of archives, or downloaded into it with apt-get, npm and pip. Nothing is installed.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_CORPUS_INCLUDED_", frozen=True, extra="forbid")

    out: Path = Field(description="the folder to write to: train.messages.en-de.en, train.messages.en-de.de and so on")
    archives: Path = Field(
        Path("~/.cache/dragoman/sources"), description="folder of archives of packages, or of unpacked ones"
    )
    sources: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        (INCLUDED,), description="names of model/data/sources/sources.yaml; `included`: all with permissive licenses"
    )
    languages: Annotated[tuple[Literal["de", "fr", "cs"], ...], NoDecode, BeforeValidator(_split_at_commas)] = Field(
        ("de", "fr", "cs"), description="the languages besides English"
    )

    def cli_cmd(self) -> None:
        """Writes the files, and prints the numbers of pairs and the license."""
        sources = choose_sources(self.sources, load_sources())
        license_name = license_of_mixture({name: source.license for name, source in sources.items()})
        archives = self.archives.expanduser()
        archives.mkdir(parents=True, exist_ok=True)
        texts = {name: read_source(name, sources[name], archives) for name in tqdm(sources, "sources", unit=" sources")}
        for archive in (archive for text in texts.values() for archive in text.archives if archive.warning):
            print(f"dragoman corpus included: {archive.warning}", file=sys.stderr)
        parts = write_parts(self.out, texts, self.languages)
        described = {name: describe(sources[name], texts[name]) for name in sources}
        manifest = {"license": license_name, "parts": parts, "sources": described}
        (self.out / MANIFEST).write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")
        print(format_table([["part", "pairs"], *([name, f"{pairs:,}"] for name, pairs in parts.items())], 1))
        print(f"\nA model of this text may be distributed under: {license_name}")


def choose_sources(names: Iterable[str], known: Mapping[str, Source]) -> dict[str, Source]:
    """Returns these sources; `included` stands for all with permissive licenses. Raises CorpusError for other names."""
    chosen: dict[str, Source] = {}
    for name in names:
        if name == INCLUDED:
            chosen |= {item: source for item, source in known.items() if is_permissive(source.license)}
        elif name in known:
            chosen[name] = known[name]
        else:
            raise CorpusError(f"sources: {name!r}: expected {INCLUDED}, {', '.join(known)}")
    return chosen


def write_parts(out: Path, texts: Mapping[str, SourceText], languages: Iterable[str]) -> dict[str, int]:
    """Writes two files per part, role and language; all appear together. Returns the pairs of each."""
    out.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    with TemporaryDirectory(dir=out, prefix=".corpus-") as folder:
        staging = Path(folder)
        for language in languages:
            rows = (row for text in texts.values() for row in text.rows.get(language, ()))
            for name, pairs in parts_of(rows, language).items():
                for suffix, side in zip(("en", language), zip(*pairs, strict=True), strict=True):
                    path = staging / f"{name}.en-{language}.{suffix}"
                    path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8", newline="\n")
                counts[f"{name}.en-{language}"] = len(pairs)
        for path in staging.iterdir():
            path.replace(out / path.name)
    return counts


def describe(source: Source, text: SourceText) -> dict[str, Any]:
    """Returns what was read of a source: its license, packages, pairs by language, and pairs that cleaning removed."""
    return {
        "license": source.license,
        "role": source.role,
        "packages": {
            archive.package: {"registry": source.registry, "version": archive.version, "sha256": archive.sha256}
            for archive in text.archives
        },
        "pairs": {f"en-{language}": len(rows) for language, rows in text.rows.items()},
        "removed": {reason.value: text.dropped[reason] for reason in Reason if text.dropped[reason]},
    }
