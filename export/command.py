"""`dragoman export`: a model in, a bundle out. The model is a training run, or one that others trained."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from export.evaluate.command import EvaluateCommand
from export.graphs.graphs import UnsupportedGraphError
from export.imports.common import ImportedModelError, ImportOptions, golden_texts
from export.imports.ctranslate2 import import_ctranslate2
from export.imports.marian import import_marian
from export.make_bundle import BundleOptions, Sample, write_bundle
from export.origin import read_origin
from export.source_model import Exportable
from model.config import Direction
from model.data.corpus import CorpusError, Specifications, read_lines
from model.run import RunError
from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.manifest import AttentionHead, GraphVariant, Precision

ORIGINS = ("run", "from_marian", "from_ctranslate2")
# For golden sentences and ranges of activations; more would say nothing new.
MOST_SENTENCES = 1000
OF_IMPORTS = ("source_language", "target_language", "sentences", "max_source_tokens", "max_target_tokens")


class ExportCommand(BaseSettings):
    """Turns a trained model into a bundle that `dragoman serve` can serve.

    The model is a training run, or a bundle in fp32, which is made anew with other options; or with --from-marian or
    --from-ctranslate2 one that others trained. The new bundle is a folder with the ONNX graphs of
    encoder and decoder step, their weights, the tokenizer, golden sentences that a server checks before it becomes
    ready, and a manifest with checksums and provenance.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_EXPORT_", frozen=True, extra="forbid")

    run: CliPositionalArg[Path | None] = Field(
        None, description="folder of a training run, whose best checkpoint is exported, or of a bundle in fp32"
    )
    from_marian: Path | None = Field(None, description="folder of a Hugging Face Marian checkpoint, as of OPUS-MT")
    from_ctranslate2: Path | None = Field(None, description="folder of a CTranslate2 model, or an Argos package")
    out: Path = Field(description="folder of the new bundle; must not exist")
    name: str | None = Field(None, description="name of the model in metrics and answers; default: the folder's name")
    variant: GraphVariant = Field(
        "cpu",
        description="cpu, cuda: the fastest operators of ONNX Runtime there; portable: those of the standard alone",
    )
    precision: Precision = Field(
        "fp32",
        description="numbers to compute with; int8: faster, smaller, less exact; int8-static: faster and less exact "
        "still, with scales that the golden sentences fix; fp16: for cuda",
    )
    align: tuple[Annotated[str, StringConstraints(pattern=r"^\d+:\d+$")], ...] = Field(
        (),
        description="heads of cross-attention, LAYER:HEAD from 0 on, whose weights a second decoder also gives",
    )
    quality: Specifications = Field(
        (),
        description="test data, as `dragoman evaluate` takes them: measures the bundle beside what it is made from",
    )
    source_language: str | None = Field(None, description="imports: what the model reads, where its files do not tell")
    target_language: str | None = Field(None, description="imports: what it writes; of several, the only one to offer")
    sentences: Path | None = Field(
        None,
        description="imports: texts for golden sentences, one a line, at most 1,000; default: made of its vocabulary",
    )
    max_source_tokens: int | None = Field(
        None, gt=1, description="imports: longest source; default: 256, or what the model has positions for"
    )
    max_target_tokens: int | None = Field(None, gt=1, description="imports: longest translation; default: the same")

    def cli_cmd(self) -> None:
        """Exports; prints what was written."""
        if self.out.exists():
            raise SystemExit(f"dragoman export: out: {self.out}: exists, expected the name of a new folder")
        given = {origin: getattr(self, origin) for origin in ORIGINS if getattr(self, origin) is not None}
        if len(given) != 1:
            raise SystemExit("dragoman export: expected either a run, or --from-marian, or --from-ctranslate2")
        ((origin, path),) = given.items()
        ignored = [name for name in OF_IMPORTS if origin == "run" and getattr(self, name) is not None]
        if ignored:
            problem = "expected no such option with a run or a bundle, which tell it themselves"
            raise SystemExit(f"dragoman export: {ignored[0].replace('_', '-')}: {problem}")
        if self.precision == "int8-static" and origin != "run" and self.sentences is None:
            raise SystemExit(
                "dragoman export: precision: int8-static: expected --sentences with an import: the texts that are "
                "made up without it do not show what activations real ones have"
            )
        try:
            exportable, samples = self._read(origin, path)
            name = self.name or self.out.resolve().name
            options = BundleOptions(name, self.variant, self.precision, tuple(map(_read_head, self.align)))
            bundle = write_bundle(exportable, samples, self.out, options)
        except UnsupportedGraphError as error:
            raise SystemExit(f"dragoman export: {error}") from error
        except (CorpusError, ImportedModelError, RunError, TokenizerError) as error:
            raise SystemExit(f"dragoman export: {origin.replace('_', '-')}: {error}") from error
        size_bytes = sum(path.stat().st_size for path in self.out.iterdir())
        print(f"{self.out}: {size_bytes / 1e6:.1f} MB, {len(bundle.golden)} golden sentences")
        if self.quality:
            baseline = None if self.run is None else str(self.run)
            EvaluateCommand(system=str(self.out), baseline=baseline, data=self.quality).cli_cmd()

    def _read(self, origin: str, path: Path) -> tuple[Exportable, list[Sample]]:
        """Returns a model and texts for its golden sentences."""
        if origin == "run":
            return read_origin(path)
        options = ImportOptions(
            self.source_language, self.target_language, self.max_source_tokens, self.max_target_tokens
        )
        exportable = (import_marian if origin == "from_marian" else import_ctranslate2)(path, options)
        texts = _read_sentences(self.sentences) if self.sentences else golden_texts(exportable.tokenizer.source_pieces)
        directions = [Direction(source=each.source, target=each.target) for each in exportable.directions]
        return exportable, [Sample(direction, text) for direction in directions for text in texts if text.strip()]


def _read_sentences(path: Path) -> list[str]:
    texts = read_lines(path)
    if len(texts) > MOST_SENTENCES:
        problem = f"expected at most {MOST_SENTENCES:,}: every server translates them before it is ready"
        raise SystemExit(f"dragoman export: sentences: {path}: {len(texts):,} lines, {problem}")
    return texts


def _read_head(text: str) -> AttentionHead:
    layer, _, head = text.partition(":")
    return AttentionHead(layer=int(layer), head=int(head))
