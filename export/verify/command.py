"""`dragoman verify`: compares a bundle with its PyTorch model, and checks batch invariance.

Uses the server's scheduler, engine and runtime. Only --run needs PyTorch.
"""

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, PositiveInt
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict
from tqdm import tqdm

from dragoman.export.answer import Outcome, Sentence
from dragoman.export.source_model import find_direction
from dragoman.export.verify.checks import BatchMix, Check, Demands, Examination, VerificationPlan
from dragoman.export.verify.stepper import Reader
from dragoman.model.data.corpus import Corpus, read_corpus
from dragoman.model.errors import CorpusError, UserError
from dragoman.serve.bundle.bundle import Bundle, damage_explained
from dragoman.serve.bundle.manifest import Precision
from dragoman.serve.host.system import DeviceChoice
from dragoman.tables import described

if TYPE_CHECKING:
    from dragoman.export.verify.reference import References

# 8-bit rounding changes some translations: the share of equal ones is reported, but required only on request.
DEMANDS: dict[Precision, Demands] = {
    "fp32": Demands(0.999, 1e-3),
    "fp16": Demands(0.99, 0.1),
    "int8": Demands(0.0, math.inf),
}


@described(__file__)
class VerifyCommand(BaseSettings):
    """Compares a bundle with its PyTorch model and checks batch invariance; exits with 1 on failure.

    logits: the logits of every step match PyTorch. tokens: tokens and scores of greedy and beam search match PyTorch,
    the engine matches a plain loop over the same graphs bit by bit, and golden sentences match. invariance: a
    translation is bitwise the same alone and in any batch. Each check prints one line. A failed check adds the first
    difference and the lead of the best logit there; a large lead indicates a wrong graph, a small one a near tie. An
    8-bit bundle is compared with the PyTorch model rounded in the same places. --original compares the golden sentences
    of an imported bundle with the library of its checkpoint.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_VERIFY_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path]
    run: Path | None = None
    original: Path | None = None
    data: str | None = None
    split: Literal["train", "validation", "test"] = "test"
    multi30k_folder: Path | None = None
    checks: tuple[Check, ...] = Field(("logits", "tokens", "invariance"), min_length=1)
    sentences: int = Field(1000, gt=0)
    beam_size: int = Field(4, ge=2)
    length_penalty: float = Field(1.0, ge=0)
    logits_tolerance: float | None = Field(None, ge=0)
    score_tolerance: float | None = Field(None, ge=0)
    minimum_identical: float | None = Field(None, ge=0, le=1)
    invariance_sentences: int = Field(512, gt=0)
    batches: tuple[PositiveInt, ...] = Field((2, 8, 32, 128), min_length=1)
    device: DeviceChoice = "auto"
    seed: int = Field(1, ge=0)

    def cli_cmd(self) -> None:
        """Runs the checks; prints one line per check."""
        with damage_explained(self.bundle, UserError):
            failed = [outcome.check for outcome in self._outcomes() if outcome.verdict == "FAIL"]
        if failed:
            raise SystemExit(f"dragoman verify: {self.bundle}: failed: {'; '.join(failed)}")

    def _outcomes(self) -> Iterator[Outcome]:
        """Yields the outcome of each check after it is printed."""
        bundle = Bundle.open(self.bundle)
        if self.original is not None:
            minimum = self._demands(bundle.manifest.precision).minimum_identical
            from dragoman.export.verify.original import compare_with_original  # noqa: PLC0415 - takes long to import

            for outcome in compare_with_original(bundle, self.original, self.beam_size, minimum):
                print(outcome)
                yield outcome
        if self.data is not None:
            yield from self._check_sentences(self.data, bundle)
        elif self.original is None:
            raise CorpusError("data: missing: expected sentences, or --original")

    def _check_sentences(self, data: str, bundle: Bundle) -> Iterator[Outcome]:
        reader = Reader(bundle)
        corpus = read_corpus(data, self.split, self.multi30k_folder)
        sentences = self._read(bundle, reader, corpus)
        references = None if self.run is None else self._references(self.run, bundle, corpus, sentences)
        examination = Examination(
            bundle, reader, sentences, references, self._plan(bundle.manifest.precision), device=self.device
        )
        with tqdm(desc="verifying", unit=" translations", disable=None) as progress:
            for outcome in examination.outcomes(progress.update):
                progress.write(str(outcome))
                yield outcome

    def _read(self, bundle: Bundle, reader: Reader, corpus: Corpus) -> list[Sentence]:
        """Returns enough sentences for every check, without those that are too long."""
        manifest = bundle.manifest
        if find_direction(manifest, corpus.languages).start:
            problem = "translations start with the token of a language, which these checks do not force"
            raise CorpusError(f"{self.bundle}: {corpus.direction}: {problem}")
        read = (Sentence(text, reader.source_ids(corpus.languages, text)) for text in corpus.sources)
        fitting = (sentence for sentence in read if len(sentence.source_ids) <= manifest.max_source_tokens)
        sentences = list(islice(fitting, max(self.sentences, self.invariance_sentences)))
        if not sentences:
            raise CorpusError(f"data: all {len(corpus)} sentences are longer than {manifest.max_source_tokens} tokens")
        return sentences

    def _references(self, run: Path, bundle: Bundle, corpus: Corpus, sentences: list[Sentence]) -> "References":
        """Loads the PyTorch model and checks that it reads the same tokens as the bundle."""
        # Without --run, PyTorch may not be installed.
        from dragoman.export.origin import read_origin  # noqa: PLC0415
        from dragoman.export.verify.reference import references_of  # noqa: PLC0415

        exportable, _ = read_origin(run)
        prefix = find_direction(exportable, corpus.languages).source_prefix
        for sentence in sentences:
            if exportable.source_ids(prefix, sentence.text) != sentence.source_ids:
                raise SystemExit(
                    f"dragoman verify: run: {run}: expected the run of the bundle, got other tokens: {sentence.text}"
                )
        return references_of(exportable.network, bundle.manifest)

    def _demands(self, precision: Precision) -> Demands:
        usual = DEMANDS[precision]
        return Demands(
            usual.minimum_identical if self.minimum_identical is None else self.minimum_identical,
            usual.score_tolerance if self.score_tolerance is None else self.score_tolerance,
        )

    def _plan(self, precision: Precision) -> VerificationPlan:
        return VerificationPlan(
            checks=self.checks,
            sentences=self.sentences,
            invariance_sentences=self.invariance_sentences,
            beam_size=self.beam_size,
            length_penalty=self.length_penalty,
            demands=self._demands(precision),
            logits_tolerance=self.logits_tolerance,
            batch_mix=BatchMix(self.batches, self.seed),
        )
