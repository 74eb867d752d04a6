"""`dragoman verify`: does a bundle keep what the service promises?

Compares it with the PyTorch model that it was made from, and translations alone with the same ones among strangers,
through the scheduler, engine and runtime that serve. What is checked is in `export.verify`; without a training
run nothing here needs torch.
"""

import math
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict
from tqdm import tqdm

from export.verify.answer import Outcome, Sentence
from export.verify.checks import BatchMix, Check, Demands, Examination, Plan
from export.verify.stepper import Reader, References
from model.data.corpus import Corpus, CorpusError, read_corpus
from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.bundle import Bundle, BundleError
from serve.bundle.manifest import Precision
from serve.runtime.device_choice import DeviceChoice

# What 8 bits change is no fault of a graph: how many translations stay the same is told, and demanded only on request.
DEMANDS: dict[Precision, Demands] = {
    "fp32": Demands(0.999, 1e-3),
    "fp16": Demands(0.99, 0.1),
    "int8": Demands(0.0, math.inf),
    "int8-static": Demands(0.0, math.inf),
}


class VerifyCommand(BaseSettings):
    """Checks that a bundle keeps what the service promises; exits with 1 if it does not.

    logits: every step's logits are those of the PyTorch model that the bundle was made from. tokens: so are the tokens
    and scores of translations, greedy and with a beam; the service's engine says bit by bit what the graphs say by
    hand; golden sentences come out. invariance: a translation is bitwise the same alone and among strangers. A check
    is a line with its figure; one that fails also tells the first difference, and how far the best logit led there: a
    near tie, or a wrong graph. An 8-bit bundle is compared with the PyTorch model rounded to 8 bits in the same places.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_VERIFY_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = Field(description="folder of the bundle")
    run: Path | None = Field(
        None,
        description="training run, or bundle in fp32, that the bundle was made from; without it, PyTorch is left out",
    )
    data: str = Field(description="sentences: multi30k:en-de, files:test.en,test.de or tsv:pairs.en-de.tsv")
    split: Literal["train", "validation", "test"] = Field("test", description="part of a data set that has parts")
    multi30k_folder: Path | None = Field(None, description="where Multi30k is; default: $DRAGOMAN_MULTI30K")
    checks: tuple[Check, ...] = Field(
        ("logits", "tokens", "invariance"), min_length=1, description="what to check, separated by commas"
    )
    sentences: int = Field(1000, gt=0, description="logits, tokens: how many sentences, from the beginning of the data")
    beam_size: int = Field(4, ge=2, description="hypotheses of the beam search beside the greedy one")
    length_penalty: float = Field(1.0, ge=0, description="beam search compares score / length^this; 0: score")
    logits_tolerance: float | None = Field(
        None,
        ge=0,
        description="largest difference of a logit; default: 5e-4, half of the lead by which golden sentences are "
        "decided, in fp16 0.05; in 8 bits, as much as rounding changes in PyTorch",
    )
    score_tolerance: float | None = Field(
        None, ge=0, description="largest difference of a score, in nats; default: 1e-3; in fp16 0.1; in 8 bits, any"
    )
    minimum_identical: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of translations with PyTorch's tokens; default: 0.999; in fp16 0.99; in 8 bits, 0",
    )
    invariance_sentences: int = Field(512, gt=0, description="invariance: how many sentences")
    batches: tuple[PositiveInt, ...] = Field(
        (2, 8, 32, 128), min_length=1, description="invariance: translations that run at once, separated by commas"
    )
    device: DeviceChoice = Field(
        "auto", description="where the graphs run; auto: as their variant says, cpu, or cuda on the first GPU"
    )
    seed: int = Field(1, ge=0, description="invariance: of who joins when, and in whose company")

    def cli_cmd(self) -> None:
        """Runs the checks; prints a line for each."""
        try:
            bundle = Bundle.open(self.bundle)
            reader = Reader(bundle)
            corpus = read_corpus(self.data, self.split, self.multi30k_folder)
            sentences = self._read(bundle, reader, corpus)
            references = None if self.run is None else self._references(self.run, bundle, corpus, sentences)
            examination = Examination(
                bundle, reader, sentences, references, self._plan(bundle.manifest.precision), device=self.device
            )
        except (BundleError, CorpusError, TokenizerError) as error:
            raise SystemExit(f"dragoman verify: {error}") from error
        outcomes: list[Outcome] = []
        with tqdm(total=examination.translations, desc="verifying", unit=" translations", disable=None) as progress:
            for outcome in examination.outcomes(progress.update):
                progress.write(str(outcome))
                outcomes.append(outcome)
        failed = [outcome.check for outcome in outcomes if outcome.verdict == "FAIL"]
        if failed:
            raise SystemExit(f"dragoman verify: {self.bundle}: failed: {'; '.join(failed)}")

    def _read(self, bundle: Bundle, reader: Reader, corpus: Corpus) -> list[Sentence]:
        """Returns as many sentences as any check wants, without those that are too long."""
        manifest = bundle.manifest
        if corpus.languages not in {(each.source, each.target) for each in manifest.directions}:
            expected = " or ".join(map(str, manifest.directions))
            raise CorpusError(f"data: {self.data}: languages are {corpus.direction}, expected {expected}")
        read = (Sentence(text, reader.source_ids(corpus.languages, text)) for text in corpus.sources)
        fitting = (sentence for sentence in read if len(sentence.source_ids) <= manifest.max_source_tokens)
        sentences = list(islice(fitting, max(self.sentences, self.invariance_sentences)))
        if not sentences:
            raise CorpusError(f"data: none of {len(corpus)} sentences is short enough for the model")
        return sentences

    def _references(self, run: Path, bundle: Bundle, corpus: Corpus, sentences: list[Sentence]) -> References:
        """Loads the PyTorch model, which has to read the sentences as the bundle does."""
        # Who has no training run may have no torch.
        from export.origin import read_origin  # noqa: PLC0415
        from export.verify.reference import references_of  # noqa: PLC0415
        from model.run import RunError  # noqa: PLC0415

        try:
            exportable, _ = read_origin(run)
        except (CorpusError, RunError) as error:
            raise SystemExit(f"dragoman verify: {error}") from error
        prefix = next(
            (each.source_prefix for each in exportable.directions if (each.source, each.target) == corpus.languages), ()
        )
        for sentence in sentences:
            if exportable.source_ids(prefix, sentence.text) != sentence.source_ids:
                raise SystemExit(
                    f"dragoman verify: run: {run}: reads other tokens than the bundle, expected the run that the "
                    f"bundle was made from: {sentence.text}"
                )
        return references_of(exportable.model, bundle.manifest)

    def _plan(self, precision: Precision) -> Plan:
        demands = DEMANDS[precision]
        return Plan(
            checks=self.checks,
            sentences=self.sentences,
            invariance_sentences=self.invariance_sentences,
            beam_size=self.beam_size,
            length_penalty=self.length_penalty,
            demands=Demands(
                demands.minimum_identical if self.minimum_identical is None else self.minimum_identical,
                demands.score_tolerance if self.score_tolerance is None else self.score_tolerance,
            ),
            logits_tolerance=self.logits_tolerance,
            companies=BatchMix(self.batches, self.seed),
        )
