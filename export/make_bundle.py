"""Writes a bundle: graphs, tokenizer, golden sentences, manifest."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from export.graphs.calibration import Observed, observe
from export.graphs.graphs import NOTHING_OBSERVED, graphs_of
from export.graphs.to_onnx import OPSET, ExportedGraphs, export_graphs
from export.source_model import Exportable
from model.config import Direction
from model.data.corpus import CorpusError, read_lines
from model.network.transformer import Transformer
from model.network.translation_model import TranslationModel
from model.run import RunError, TrainedModel
from model.search import generate_greedy
from model.versions import installed_versions
from serve.bundle.bundle import Bundle, file_hashes, write_golden, write_manifest
from serve.bundle.manifest import (
    EIGHT_BITS,
    AttentionHead,
    BundleDirection,
    GoldenSentence,
    GraphVariant,
    Manifest,
    Precision,
    Provenance,
    TokenizerSpec,
)
from serve.bundle.tokenizer import write_tokenizer

# Smallest lead of the best logit in a golden sentence. A near tie tests nothing: another CPU may round differently, and
# fp16 is a thousand times coarser than the fp32 that produces the golden sentences.
SMALLEST_GOLDEN_GAP: dict[Precision, float] = {"fp32": 1e-3, "int8": 1e-3, "int8-static": 1e-3, "fp16": 0.1}
# Recorded if installed; an fp32 export needs no ONNX Runtime.
LIBRARIES = ("dragoman", "onnx", "onnxruntime", "onnxruntime-gpu", "sentencepiece", "torch")


@dataclass(frozen=True, slots=True)
class BundleOptions:
    """Options of a bundle; without alignment heads it has no aligned decoder."""

    name: str
    variant: GraphVariant = "cpu"
    precision: Precision = "fp32"
    alignment_heads: tuple[AttentionHead, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """A source text for a golden sentence."""

    direction: Direction
    text: str


def read_samples(path: Path, directions: Sequence[Direction]) -> list[Sample]:
    """Reads the samples of a run: source language, target language and text, separated by tabs.

    Raises:
        CorpusError: if the file cannot be read, or a line is no sample of the directions.
    """
    known = {(direction.source, direction.target): direction for direction in directions}
    samples = []
    for number, line in enumerate(read_lines(path), start=1):
        source, _, rest = line.partition("\t")
        target, _, text = rest.partition("\t")
        if (source, target) not in known or not text:
            expected = " or ".join(map(str, directions))
            raise CorpusError(
                f"{path}: line {number}: expected the languages of {expected} and a text, separated by tabs"
            )
        samples.append(Sample(known[source, target], text))
    return samples


def make_bundle(trained: TrainedModel, samples: Sequence[Sample], out: Path, options: BundleOptions) -> Bundle:
    """Writes the bundle of a run; see `write_bundle`."""
    return write_bundle(Exportable.of_run(trained), samples, out, options)


def write_bundle(exportable: Exportable, samples: Sequence[Sample], out: Path, options: BundleOptions) -> Bundle:
    """Writes a bundle atomically: the folder `out` appears complete or not at all.

    Raises:
        RunError: if a direction has no golden sentence; a server could not verify it.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
    try:
        golden = [
            sentence
            for direction in exportable.directions
            for sentence in golden_sentences(
                exportable, direction, _texts_of(direction, samples), SMALLEST_GOLDEN_GAP[options.precision]
            )
        ]
        observed = _observe(exportable.model, golden, options)
        heads = options.alignment_heads
        graphs = graphs_of(exportable.model, options.variant, options.precision, heads, observed)
        exported = export_graphs(graphs, workshop)
        contents = _Contents(exportable, exported, observed, write_tokenizer(exportable.tokenizer, workshop))
        _seal(workshop, contents, options, golden)
        if options.precision in EIGHT_BITS:
            _seal(workshop, contents, options, reproduced(Bundle.open(workshop)))
        workshop.chmod(0o755)
        workshop.rename(out)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return Bundle.open(out)


def reproduced(bundle: Bundle) -> list[GoldenSentence]:
    """Returns the golden sentences that an 8-bit bundle translates like the trained model.

    Raises:
        RunError: if a direction has none left.
    """
    from export.graph_decoder import translate  # noqa: PLC0415 - only 8-bit exports need ONNX Runtime

    answers = translate(bundle, [sentence.source_ids for sentence in bundle.golden])
    kept = [s for s, answer in zip(bundle.golden, answers, strict=True) if s.target_ids == answer.target_ids]
    for direction in bundle.manifest.directions:
        if not any((s.source_language, s.target_language) == (direction.source, direction.target) for s in kept):
            precision = bundle.manifest.precision
            raise RunError(
                f"precision: {precision}: no {direction} golden sentence has the trained model's translation"
            )
    return kept


def _observe(model: TranslationModel, golden: Sequence[GoldenSentence], options: BundleOptions) -> Observed:
    """Returns ranges for static quantization, which only Transformers support."""
    if options.precision != "int8-static" or not isinstance(model, Transformer):
        return NOTHING_OBSERVED
    observed = observe(model, [(sentence.source_ids, sentence.target_ids) for sentence in golden])
    # Only the CPU operator supports int8 caches.
    return observed if options.variant == "cpu" else observed._replace(caches={})


@dataclass(frozen=True, slots=True)
class _Contents:
    """The parts of a bundle except golden sentences."""

    exportable: Exportable
    graphs: ExportedGraphs
    observed: Observed
    tokenizer: TokenizerSpec


def _seal(folder: Path, contents: _Contents, options: BundleOptions, golden: Sequence[GoldenSentence]) -> None:
    write_golden(folder, tuple(golden))
    write_manifest(folder, _manifest(folder, contents, options, len(golden)))


def golden_sentences(
    exportable: Exportable, direction: BundleDirection, texts: Sequence[str], smallest_gap: float
) -> list[GoldenSentence]:
    """Translates texts with PyTorch; omits texts that are too long, and translations with a near tie.

    In a near tie, the best logit leads the second best by less than `smallest_gap` at some step.

    Raises:
        RunError: if no text is left.
    """
    longest = exportable.model.limits.max_source_tokens
    sources = ((text, exportable.source_ids(direction.source_prefix, text)) for text in texts)
    fitting = [(text, source_ids) for text, source_ids in sources if len(source_ids) <= longest]
    if not fitting:
        raise RunError(f"golden sentences: {direction}: none of {len(texts)} texts fits the limit of the model")
    generated = generate_greedy(exportable.model, [source_ids for _, source_ids in fitting])
    golden = [
        GoldenSentence(
            source_language=direction.source,
            target_language=direction.target,
            source=text,
            source_ids=source_ids,
            target_ids=answer.target_ids,
            target=exportable.tokenizer.decode(answer.target_ids),
        )
        for (text, source_ids), answer in zip(fitting, generated, strict=True)
        if min(answer.gaps) >= smallest_gap
    ]
    if not golden:
        raise RunError(
            f"golden sentences: {direction}: all {len(fitting)} translations have near ties, expected one without"
        )
    return golden


def _texts_of(direction: BundleDirection, samples: Sequence[Sample]) -> list[str]:
    languages = direction.source, direction.target
    return [sample.text for sample in samples if (sample.direction.source, sample.direction.target) == languages]


def _manifest(folder: Path, contents: _Contents, options: BundleOptions, golden: int) -> Manifest:
    exportable, graphs = contents.exportable, contents.graphs
    model = exportable.model
    return Manifest(
        name=options.name,
        vocabulary_size=model.vocabulary_size,
        directions=exportable.directions,
        source_suffix=exportable.source_suffix,
        tokenizer=contents.tokenizer,
        states=graphs.states,
        alignment_heads=options.alignment_heads,
        pad_id=model.pad_id,
        unk_id=exportable.unk_id,
        bos_id=model.bos_id,
        eos_id=model.eos_id,
        max_source_tokens=model.limits.max_source_tokens,
        max_target_tokens=model.limits.max_target_tokens,
        variant=options.variant,
        precision=options.precision,
        activation_ranges=contents.observed.activations,
        cache_ranges=contents.observed.caches,
        opset=OPSET,
        encoder=graphs.encoder,
        decoder=graphs.decoder,
        shared_weights=graphs.shared_weights,
        files=dict(file_hashes(folder)),
        provenance=Provenance(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=installed_versions(LIBRARIES),
            training=exportable.training,
            steps=exportable.steps,
            scores={"golden_sentences": golden},
        ),
    )
