"""`dragoman evaluate`: how well a system translates a test set, and whether it does so better than another one.

A system is whatever `export.evaluate.systems` opens, so that the PyTorch model, the bundle made from it and the
server that serves it are measured by the same figures.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg, SettingsConfigDict
from tqdm import tqdm

from export.evaluate.evaluation import Evaluation, evaluate, format_evaluations
from export.evaluate.system import Search, System, SystemUnusableError
from export.evaluate.systems import EXPECTED, open_system
from model.data.corpus import Corpus, CorpusError, Specifications, read_corpora
from model.versions import installed_versions
from serve.clients.options import ConnectionOptions
from serve.files import FileError

LIBRARIES = ("dragoman", "sacrebleu", "sacremoses", "torch", "onnxruntime", "onnxruntime-gpu")


class EvaluateCommand(ConnectionOptions):
    """Translates a test set with a system and measures the translations against the references.

    Prints BLEU (Papineni et al. 2002) and chrF (Popovic 2015) of sacreBLEU on the text as it is, each with its 95 %
    confidence interval by bootstrap resampling (Koehn 2004) and its signature; the share of translations that equal
    their reference; and the length of the translations over that of the references. With a baseline, also how probable
    it is that the difference is an accident of the test set.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_EVALUATE_", frozen=True, extra="forbid", cli_shortcuts={"json-file": "json"}
    )

    system: CliPositionalArg[str] = Field(description=EXPECTED)
    data: Specifications = Field(
        description="test set: multi30k:en-de, multi30k:all, files:test.en,test.de, tsv:pairs.en-de.tsv or "
        "hf:NAME:en-de; may be given several times"
    )
    split: Literal["train", "validation", "test"] = Field("test", description="part of a data set that has parts")
    multi30k_folder: Path | None = Field(None, description="where Multi30k is; default: $DRAGOMAN_MULTI30K")
    baseline: str | None = Field(None, description="a second system, to compare the first one with")
    beam_size: int = Field(1, ge=1, description="hypotheses that the search keeps; 1: greedy search")
    length_penalty: float = Field(1.0, ge=0, description="beam search compares score / length^this; 0: score")
    literature: bool = Field(False, description="also BLEU of lowercased text in Moses' tokens, as papers report it")
    output: Path | None = Field(None, description="file that gets the system's translations, one a line")
    json_file: Path | None = Field(None, description="file that gets all figures, and how they were obtained")
    minimum_bleu: float = Field(0.0, ge=0, le=100, description="exit with 1 if a direction's BLEU is lower")
    minimum_exact: float = Field(0.0, ge=0, le=1, description="exit with 1 if a direction's exact share is lower")

    def cli_cmd(self) -> None:
        """Translates and measures; prints a row for each direction."""
        self._check_output_folders()
        # A bundle brings the service's logs along, in which sacreBLEU would tell of every step.
        logging.getLogger("sacrebleu").setLevel(logging.WARNING)
        try:
            systems = self._open_systems()
            corpora = read_corpora(self.data, self.split, self.multi30k_folder)
            translations, *others = self._translate(systems, corpora)
        except (CorpusError, FileError, SystemUnusableError) as error:
            raise SystemExit(f"dragoman evaluate: {error}") from error
        baselines: Sequence[list[str] | None] = others[0] if others else [None] * len(corpora)
        evaluations = [
            evaluate(corpus, ours, theirs, literature=self.literature)
            for corpus, ours, theirs in zip(corpora, translations, baselines, strict=True)
        ]
        print(f"{self._describe(systems)}\n\n{format_evaluations(evaluations)}")
        if self.json_file is not None:
            _write(self.json_file, self._document(systems, evaluations))
        self._check_minimums(evaluations)

    def _check_output_folders(self) -> None:
        # Before anything is translated, which may take an hour.
        for option, path in (("output", self.output), ("json", self.json_file)):
            if path is not None and (path.is_dir() or not path.parent.is_dir()):
                raise SystemExit(f"dragoman evaluate: {option}: {path}: expected a file in a folder that exists")

    def _open_systems(self) -> list[System]:
        search = Search(self.beam_size, self.length_penalty)
        names = [self.system] if self.baseline is None else [self.system, self.baseline]
        connection = self.connection(*names)
        systems = [open_system(name, search, connection) for name in names]
        if self.beam_size > 1 and all(system.kind == "file" for system in systems):
            given = " and ".join(names)
            raise SystemUnusableError(
                f"beam-size: {self.beam_size}: {given}: finished translations, expected a system that searches"
            )
        return systems

    def _translate(self, systems: Sequence[System], corpora: Sequence[Corpus]) -> list[list[list[str]]]:
        """Returns what each system makes of each corpus."""
        sentences = len(systems) * sum(len(corpus) for corpus in corpora)
        translations: list[list[list[str]]] = []
        with tqdm(total=sentences, desc="translating", unit=" sentences", disable=None) as progress:
            for system in systems:
                translations.append(system.translate(corpora, progress))
                if self.output is not None and system is systems[0]:
                    _write(self.output, "".join(f"{line}\n" for lines in translations[0] for line in lines))
        return translations

    def _describe(self, systems: Sequence[System]) -> str:
        lines = [f"system    {self.system} ({self._kind(systems[0])})"]
        if self.baseline is not None:
            lines.append(f"baseline  {self.baseline} ({self._kind(systems[1])})")
        return "\n".join([*lines, f"data      {' '.join(self.data)}, {self.split}"])

    def _kind(self, system: System) -> str:
        search = Search(self.beam_size, self.length_penalty)
        return system.kind if system.kind == "file" else f"{system.kind}, {search}"

    def _document(self, systems: Sequence[System], evaluations: Sequence[Evaluation]) -> str:
        document = {
            "system": {"name": self.system, "kind": systems[0].kind},
            "baseline": None if self.baseline is None else {"name": self.baseline, "kind": systems[1].kind},
            "settings": self.model_dump(mode="json"),
            "versions": installed_versions(LIBRARIES),
            "directions": [asdict(evaluation) for evaluation in evaluations],
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

    def _check_minimums(self, evaluations: Sequence[Evaluation]) -> None:
        for evaluation in evaluations:
            bleu, exact = evaluation.system.bleu, evaluation.system.exact
            if bleu < self.minimum_bleu:
                missed = f"BLEU is {bleu:.2f}, expected at least {self.minimum_bleu:g}"
                raise SystemExit(f"dragoman evaluate: {evaluation.direction}: {missed}")
            if exact < self.minimum_exact:
                missed = f"{exact:.2%} are exact, expected at least {self.minimum_exact:.2%}"
                raise SystemExit(f"dragoman evaluate: {evaluation.direction}: {missed}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SystemExit(f"dragoman evaluate: {path}: {error.strerror}, expected a file that can be written") from error
