"""`dragoman evaluate`: scores the translations of a system, and compares them with a baseline.

The same metrics apply to a PyTorch model, the bundle made from it and the server that serves it.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg, SettingsConfigDict
from sacrebleu.metrics.chrf import CHRF
from tqdm import tqdm

from dragoman.export.evaluate.system import Search, System, SystemUnusableError
from dragoman.export.evaluate.systems import EXPECTED, open_system
from dragoman.model.data.corpus import Corpus, Specifications, read_corpora
from dragoman.model.output_file import check_output, write_output
from dragoman.model.scoring import Measure, Quality, bleu_metric, measure, measure_as_literature, score
from dragoman.model.text_table import format_table
from dragoman.model.versions import installed_versions
from dragoman.serve.clients.options import ConnectionOptions
from dragoman.tables import described, read_table


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The scores of one direction; `measures` are the metrics with confidence intervals by name."""

    source_language: str
    target_language: str
    sentences: int
    measures: dict[str, Measure]
    system: Quality
    baseline: Quality | None

    @property
    def direction(self) -> str:
        """The direction as `SOURCE-TARGET`, for example `en-de`."""
        return f"{self.source_language}-{self.target_language}"


def evaluate(
    corpus: Corpus, translations: Sequence[str], baseline: Sequence[str] | None, *, literature: bool
) -> Evaluation:
    """Scores one translation per source; `literature` adds BLEU of lowercased text in Moses tokens."""
    references, languages = corpus.targets, [corpus.target_language] * len(corpus)
    measures = {
        "BLEU": measure(bleu_metric(corpus.target_language), translations, references, baseline),
        "chrF": measure(CHRF(), translations, references, baseline),
    }
    if literature:
        measures["literature BLEU"] = measure_as_literature(translations, references, corpus.target_language, baseline)
    return Evaluation(
        corpus.source_language,
        corpus.target_language,
        len(corpus),
        measures,
        score(translations, references, languages),
        None if baseline is None else score(baseline, references, languages),
    )


def format_evaluations(evaluations: Sequence[Evaluation]) -> str:
    """Returns a table with one row per direction and system, followed by the metric signatures."""
    compared = evaluations[0].baseline is not None
    heading = ["direction", *(["system"] if compared else []), "sentences"]
    for name in evaluations[0].measures:
        heading += [name, *(["p"] if compared else [])]
    rows = [[*heading, "exact", "length"]]
    for evaluation in evaluations:
        rows += _rows(evaluation)
    signatures = [
        [name, signature]
        for name in evaluations[0].measures
        for signature in dict.fromkeys(evaluation.measures[name].signature for evaluation in evaluations)
    ]
    return f"{format_table(rows, 2 if compared else 1)}\n\n{format_table(signatures, 2)}"


def _rows(evaluation: Evaluation) -> list[list[str]]:
    start, end = [evaluation.direction], [str(evaluation.sentences)]
    measures = evaluation.measures.values()
    if evaluation.baseline is None:
        return [start + end + [str(measured.system) for measured in measures] + _shares(evaluation.system)]
    ours = [cell for measured in measures for cell in (str(measured.system), f"{measured.p_value:.3f}")]
    theirs = [cell for measured in measures for cell in (str(measured.baseline), "")]
    return [
        [*start, "system", *end, *ours, *_shares(evaluation.system)],
        [*start, "baseline", *end, *theirs, *_shares(evaluation.baseline)],
    ]


def _shares(quality: Quality) -> list[str]:
    return [f"{quality.exact:.2%}", f"{quality.length_ratio:.3f}"]


LIBRARIES = ("dragoman", "sacrebleu", "sacremoses", "torch", "onnxruntime", "onnxruntime-gpu")


@described(__file__)
class EvaluateCommand(ConnectionOptions):
    """Translates a test set with a system and scores the translations against the references.

    Prints BLEU (Papineni et al. 2002) and chrF (Popovic 2015) of the unchanged text, computed by sacreBLEU. Each has a
    95 % confidence interval by bootstrap resampling (Koehn 2004) and its signature. Also prints the share of exact
    matches and the length ratio of translations to references. With a baseline, adds the p-value of the difference.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_EVALUATE_", frozen=True, extra="forbid", cli_shortcuts={"json-file": "json"}
    )

    HELP_GROUPS: ClassVar[dict[str, str]] = read_table(__file__, "command.yaml")["groups"]

    system: CliPositionalArg[str] = Field(description=EXPECTED)
    data: Specifications
    split: Literal["train", "validation", "test"] = "test"
    multi30k_folder: Path | None = None
    baseline: str | None = None
    beam_size: int = Field(1, ge=1, le=1000)
    length_penalty: float = Field(1.0, ge=0, le=10)
    no_repeat_ngram_tokens: int = Field(0, ge=0, le=1000)
    literature: bool = False
    output: Path | None = None
    json_file: Path | None = None
    minimum_bleu: float = Field(0.0, ge=0, le=100)
    minimum_exact: float = Field(0.0, ge=0, le=1)

    def cli_cmd(self) -> None:
        """Translates and scores; prints one row per direction."""
        check_output("evaluate", "output", self.output)
        check_output("evaluate", "json", self.json_file)
        # Importing the server's modules enables logging, and sacreBLEU logs every step.
        logging.getLogger("sacrebleu").setLevel(logging.WARNING)
        systems = self._open_systems()
        corpora = read_corpora(self.data, self.split, self.multi30k_folder)
        translations, *others = self._translate(systems, corpora)
        baselines: Sequence[list[str] | None] = others[0] if others else [None] * len(corpora)
        evaluations = [
            evaluate(corpus, ours, theirs, literature=self.literature)
            for corpus, ours, theirs in zip(corpora, translations, baselines, strict=True)
        ]
        print(f"{self._describe(systems)}\n\n{format_evaluations(evaluations)}")
        if self.json_file is not None:
            write_output(self.json_file, self._document(systems, evaluations))
        self._check_minimums(evaluations)

    def _open_systems(self) -> list[System]:
        names = [self.system] if self.baseline is None else [self.system, self.baseline]
        connection = self.connection(*names)
        systems = [open_system(name, self._search, connection) for name in names]
        if all(system.kind == "file" for system in systems):
            self._refuse_search(" and ".join(names))
        return systems

    def _refuse_search(self, files: str) -> None:
        for option, value, unused in (
            ("beam-size", self.beam_size, 1),
            ("no-repeat-ngram-tokens", self.no_repeat_ngram_tokens, 0),
        ):
            if value != unused:
                expected = "file of translations, expected a system that searches"
                raise SystemUnusableError(f"{option}: {value}: {files}: {expected}")

    def _translate(self, systems: Sequence[System], corpora: Sequence[Corpus]) -> list[list[list[str]]]:
        sentences = len(systems) * sum(len(corpus) for corpus in corpora)
        translations: list[list[list[str]]] = []
        with tqdm(total=sentences, desc="translating", unit=" sentences", disable=None) as progress:
            for system in systems:
                translations.append(system.translate(corpora, progress))
                if self.output is not None and system is systems[0]:
                    text = "".join(f"{line}\n" for lines in translations[0] for line in lines)
                    write_output(self.output, text)
        return translations

    def _describe(self, systems: Sequence[System]) -> str:
        lines = [f"system    {self.system} ({self._kind(systems[0])})"]
        if self.baseline is not None:
            lines.append(f"baseline  {self.baseline} ({self._kind(systems[1])})")
        return "\n".join([*lines, f"data      {' '.join(self.data)}, {self.split}"])

    def _kind(self, system: System) -> str:
        return system.kind if system.kind == "file" else f"{system.kind}, {self._search}"

    @property
    def _search(self) -> Search:
        return Search(
            beam_size=self.beam_size,
            length_penalty=self.length_penalty,
            no_repeat_ngram_tokens=self.no_repeat_ngram_tokens,
        )

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
                missed = f"exact share is {exact:.2%}, expected at least {self.minimum_exact:.2%}"
                raise SystemExit(f"dragoman evaluate: {evaluation.direction}: {missed}")
