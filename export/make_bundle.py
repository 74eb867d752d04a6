"""`dragoman export`: a training run in, a bundle out."""

import importlib.metadata
import shutil
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from export.bundle import (
    TOKENIZER_FILE,
    Bundle,
    GoldenSentence,
    Manifest,
    Provenance,
    file_hashes,
    write_golden,
    write_manifest,
)
from export.to_onnx import OPSET, GraphNames, export_graphs
from model.corpus import CorpusError, read_lines
from model.generate import generate_greedy
from model.run import RunError, RunFolder, TrainedModel
from model.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID

# A sentence at which two tokens are nearly as probable says nothing about a graph: another CPU may round the other way.
SMALLEST_GOLDEN_GAP = 1e-3
# Either of the two ONNX Runtimes, or none: an export needs no runtime.
LIBRARIES = ("dragoman", "onnx", "onnxruntime", "onnxruntime-gpu", "sentencepiece", "torch")


class ExportCommand(BaseSettings):
    """Turns a trained model into a bundle that `dragoman serve` can serve.

    The bundle is a folder with the ONNX graphs of encoder and decoder step, their weights, the tokenizer, golden
    sentences that a server checks before it becomes ready, and a manifest with checksums and provenance.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_EXPORT_", frozen=True, extra="forbid")

    run: CliPositionalArg[Path] = Field(description="folder of a training run; its best checkpoint is exported")
    out: Path = Field(description="folder of the new bundle; must not exist")
    name: str | None = Field(None, description="name of the model in metrics and answers; default: the folder's name")

    def cli_cmd(self) -> None:
        """Exports; prints what was written."""
        if self.out.exists():
            raise SystemExit(f"dragoman export: out: {self.out}: exists, expected the name of a new folder")
        run = RunFolder(self.run)
        try:
            sources = read_lines(run.samples)
            bundle = make_bundle(run.load(), sources, self.out, self.name or self.out.resolve().name)
        except (CorpusError, RunError) as error:
            raise SystemExit(f"dragoman export: run: {error}") from error
        size_bytes = sum(path.stat().st_size for path in self.out.iterdir())
        print(f"{self.out}: {size_bytes / 1e6:.1f} MB, {len(bundle.golden)} golden sentences")


def make_bundle(trained: TrainedModel, golden_sources: list[str], out: Path, name: str) -> Bundle:
    """Writes a bundle; the folder appears complete or not at all.

    Args:
        trained: the model and its tokenizer.
        golden_sources: texts whose translations become golden sentences.
        out: the folder to make.
        name: name of the model.

    Raises:
        RunError: if no golden sentence is left, without which no server would serve the bundle.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
    try:
        names = export_graphs(trained.model, workshop)
        (workshop / TOKENIZER_FILE).write_bytes(trained.tokenizer.model)
        golden = golden_sentences(trained, golden_sources)
        write_golden(workshop, golden)
        write_manifest(workshop, _manifest(trained, names, workshop, name, len(golden)))
        workshop.chmod(0o755)
        workshop.rename(out)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return Bundle.open(out)


def golden_sentences(trained: TrainedModel, sources: list[str]) -> tuple[GoldenSentence, ...]:
    """Translates texts with PyTorch; leaves out those that are too long or whose translation hangs by a hair."""
    tokenizer = trained.tokenizer
    source_ids = [(*tokenizer.encode(source), EOS_ID) for source in sources]
    fitting = [i for i, ids in enumerate(source_ids) if len(ids) <= trained.config.model.max_source_tokens]
    if not fitting:
        raise RunError(f"none of {len(sources)} sentences is short enough for a golden sentence")
    generated = generate_greedy(trained.model, [source_ids[i] for i in fitting])
    golden = tuple(
        GoldenSentence(
            source=sources[i],
            source_ids=source_ids[i],
            target_ids=answer.target_ids,
            target=tokenizer.decode(answer.target_ids),
        )
        for i, answer in zip(fitting, generated, strict=True)
        if min(answer.gaps) >= SMALLEST_GOLDEN_GAP
    )
    if not golden:
        raise RunError(f"the model is not sure of any of {len(fitting)} sentences, expected one for a golden sentence")
    return golden


def _manifest(trained: TrainedModel, names: GraphNames, folder: Path, name: str, golden: int) -> Manifest:
    config = trained.config
    return Manifest(
        name=name,
        source_language=config.directions[0].source,
        target_language=config.directions[0].target,
        vocabulary_size=trained.tokenizer.vocabulary_size,
        decoder_layers=trained.model.config.decoder_layers,
        heads=trained.model.config.heads,
        head_size=trained.model.config.head_size,
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        max_source_tokens=config.model.max_source_tokens,
        max_target_tokens=config.model.max_target_tokens,
        precision="fp32",
        opset=OPSET,
        encoder=names.encoder,
        decoder=names.decoder,
        files=dict(file_hashes(folder)),
        provenance=Provenance(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=_installed_versions(),
            training=config.model_dump(),
            steps=trained.steps,
            scores={"golden_sentences": golden},
        ),
    )


def _installed_versions() -> dict[str, str]:
    installed = {}
    for library in LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            installed[library] = importlib.metadata.version(library)
    return installed
