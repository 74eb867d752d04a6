"""`dragoman export`: converts a training run or an imported model to a bundle."""

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from dragoman.export.evaluate.command import EvaluateCommand
from dragoman.export.graphs.options import UnsupportedGraphError
from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.ctranslate2 import import_ctranslate2
from dragoman.export.imports.golden import golden_samples
from dragoman.export.imports.hugging_face import import_checkpoint
from dragoman.export.imports.marian_files import import_marian_files
from dragoman.export.imports.marian_folder import is_marian_folder
from dragoman.export.make_bundle import MIN_GAP, MIN_GOLDEN_GAP, BundleOptions, write_bundle
from dragoman.export.origin import read_origin
from dragoman.export.shortlist import make_shortlist
from dragoman.export.source_model import Exportable
from dragoman.model.config import Direction
from dragoman.model.data.corpus import Specifications, read_corpora, read_lines
from dragoman.model.errors import UsageError, UserError
from dragoman.model.samples import Sample
from dragoman.serve.bundle.manifest import (
    MAX_BEAM_SIZE,
    MAX_TOKENS,
    MODEL_NAMES,
    AttentionHead,
    Description,
    GraphVariant,
    Precision,
    is_model_name,
)
from dragoman.tables import described

ORIGINS = ("run", "from_marian", "from_ctranslate2")
# More golden sentences add no information.
MAX_SENTENCES = 1000
OF_IMPORTS = ("sentences", "max_source_tokens", "max_target_tokens")


@described(__file__)
class ExportCommand(BaseSettings):
    """Converts a trained model to a bundle for `dragoman serve`.

    The source is a training run, the bundle of a run, or a model of --from-marian or --from-ctranslate2. A bundle is a
    folder with ONNX graphs of encoder and decoder step, weights, tokenizer, golden sentences and a manifest. The
    manifest holds checksums and provenance. A server translates the golden sentences before it becomes ready.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_EXPORT_", frozen=True, extra="forbid")

    run: CliPositionalArg[Path | None] = None
    from_marian: Path | None = None
    from_ctranslate2: Path | None = None
    out: Path
    name: str | None = None
    description: Description = ""
    license: Description = ""
    beam_size: int | None = Field(None, ge=1, le=MAX_BEAM_SIZE)
    variant: GraphVariant = "cpu"
    precision: Precision = "fp32"
    context_separator: Description = ""
    align: tuple[Annotated[str, StringConstraints(pattern=r"^\d+:\d+$")], ...] = ()
    shortlist: Specifications = ()
    accept_worse: bool = False
    quality: Specifications = ()
    source_language: str | None = None
    target_language: str | None = None
    sentences: Path | None = None
    max_source_tokens: int | None = Field(None, gt=1, le=MAX_TOKENS)
    max_target_tokens: int | None = Field(None, gt=1, le=MAX_TOKENS)

    def cli_cmd(self) -> None:
        """Exports the model and prints the size of the bundle."""
        if self.out.exists():
            raise SystemExit(f"dragoman export: out: {self.out}: exists, expected the name of a new folder")
        name = self.name or Path(os.path.realpath(self.out)).name
        if not is_model_name(name):
            raise UsageError(f"name: {name!r}: expected {MODEL_NAMES}")
        given = {origin: getattr(self, origin) for origin in ORIGINS if getattr(self, origin) is not None}
        if len(given) != 1:
            raise UsageError("expected one of run, --from-marian and --from-ctranslate2")
        ((origin, path),) = given.items()
        ignored = [name for name in OF_IMPORTS if origin == "run" and getattr(self, name) is not None]
        if ignored:
            problem = "expected no such option with a run or a bundle"
            raise UsageError(f"{ignored[0].replace('_', '-')}: {problem}")
        try:
            exportable, samples = self._read(origin, path)
            if self.shortlist:
                shortlist = make_shortlist(exportable, read_corpora(self.shortlist))
                exportable = replace(exportable, shortlist=shortlist)
            options = BundleOptions(
                name,
                self.variant,
                self.precision,
                tuple(map(_read_head, self.align)),
                self.description,
                self.license,
                self.beam_size,
                self.context_separator,
            )
            bundle = write_bundle(exportable, samples, self.out, options)
        except UnsupportedGraphError:
            raise
        except UserError as error:
            raise UserError(f"{origin.replace('_', '-')}: {error}") from error
        self._compare()
        size_bytes = sum(path.stat().st_size for path in self.out.iterdir())
        print(f"{self.out}: {size_bytes / 1e6:.1f} MB, {len(bundle.golden)} golden sentences")
        gap, clear = bundle.manifest.provenance.scores[MIN_GAP], MIN_GOLDEN_GAP[self.precision]
        if gap < clear:
            print(
                f"dragoman export: warning: few translations are clear: the best token of a golden sentence leads by "
                f"{gap:.1g}, expected {clear:g}: another machine may not reproduce it",
                file=sys.stderr,
            )
        if self.quality:
            baseline = None if self.run is None else str(self.run)
            EvaluateCommand(system=str(self.out), baseline=baseline, data=self.quality).cli_cmd()

    def _compare(self) -> None:
        """Compares the bundle of a further training with its initial model; removes a worse or uncompared bundle."""
        before = None if self.run is None else self.run / "before.json"
        if before is None or not before.is_file():
            return
        from dragoman.export.further.comparison import find_loss  # noqa: PLC0415 - needs the metrics

        loss: str | None = "not compared"
        try:
            loss = find_loss(before, self.out)
        finally:
            if refused := loss is not None and not self.accept_worse:
                shutil.rmtree(self.out)
        if refused:
            problem = "worse than the initial model, use --accept-worse to export it"
            raise SystemExit(f"dragoman export: run: {self.run}: {problem}: {loss}")

    def _read(self, origin: str, path: Path) -> tuple[Exportable, list[Sample]]:
        """Returns the model and the texts for its golden sentences."""
        if origin == "run":
            exportable, samples = read_origin(path)
            languages = self.source_language, self.target_language
            return exportable if languages == (None, None) else exportable.between(*languages), samples
        options = ImportOptions(
            self.source_language, self.target_language, self.max_source_tokens, self.max_target_tokens
        )
        if origin == "from_ctranslate2":
            exportable = import_ctranslate2(path, options)
        else:
            exportable = (import_marian_files if is_marian_folder(path) else import_checkpoint)(path, options)
        if self.sentences is None:
            return exportable, golden_samples(exportable)
        texts = _read_sentences(self.sentences)
        if exportable.multilingual is not None:
            expected = "none for a multilingual model without --source-language and --target-language"
            raise ImportedModelError(f"sentences: {self.sentences}: expected {expected}")
        directions = [
            Direction(source=direction.source, target=direction.target) for direction in exportable.directions
        ]
        return exportable, [Sample(direction, text) for direction in directions for text in texts if text.strip()]


def _read_sentences(path: Path) -> list[str]:
    texts = read_lines(path)
    if len(texts) > MAX_SENTENCES:
        problem = f"expected at most {MAX_SENTENCES:,}: every server translates them at start-up"
        raise SystemExit(f"dragoman export: sentences: {path}: {len(texts):,} lines, {problem}")
    return texts


def _read_head(text: str) -> AttentionHead:
    layer, _, head = text.partition(":")
    return AttentionHead(layer=int(layer), head=int(head))
