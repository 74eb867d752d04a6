"""Writes a bundle: graphs, tokenizer, golden sentences, manifest.

PyTorch translates the golden sentences of a run. The native graphs translate those of an import. Its model in NumPy,
which reads each parameter once, must find the same tokens.
"""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

from dragoman.export.alignment import HeadMeasure
from dragoman.export.graphs.export_model import export_model
from dragoman.export.graphs.graph_files import ExportedGraphs
from dragoman.export.graphs.native.models import OPSET, NativeExport
from dragoman.export.graphs.options import check_options
from dragoman.export.source_model import Exportable
from dragoman.export.teacher_forcing import Pair, read_translations
from dragoman.model.errors import RunError
from dragoman.model.samples import Sample
from dragoman.model.versions import installed_versions
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle import manifest
from dragoman.serve.bundle.bundle import SHORTLIST_FILE, Bundle, file_hashes, write_golden, write_manifest
from dragoman.serve.bundle.directions import directions_of
from dragoman.serve.bundle.tokenizer import write_tokenizer
from dragoman.serve.bundle.tokenizer_spec import TokenizerSpec
from dragoman.serve.host.system import available_cpus

if TYPE_CHECKING:
    from dragoman.export.graph_decoder import GraphDecoder

# Smallest lead of the best logit in a golden sentence. A near tie tests nothing: another CPU, or the fallback of an
# operator, may round differently. In 8 bits a last bit can move an activation to the next level, and fp16 is a thousand
# times coarser than the fp32 that produces the golden sentences.
MIN_GOLDEN_GAP: dict[manifest.Precision, float] = {"fp32": 1e-3, "int8": 0.2, "fp16": 0.1}
# With fewer clear sentences of a direction, those with the largest leads are golden.
MIN_GOLDEN = 4
# Measurements in the manifest.
GOLDEN_SENTENCES, MIN_GAP = "golden_sentences", "smallest_golden_gap"
# Sentences on which the head for alignments is measured.
ALIGNED_SENTENCES = 12
# Rows that native graphs translate together: they bound the memory of the caches.
GOLDEN_ROWS = 8
# Recorded if installed; an fp32 export of a run needs no ONNX Runtime.
LIBRARIES = ("dragoman", "onnx", "onnxruntime", "onnxruntime-gpu", "sentencepiece", "torch")


@dataclass(frozen=True, slots=True)
class BundleOptions:
    """Options of a bundle; without alignment heads it has no aligned decoder.

    Without a description, a license, a beam of requests that choose none or a separator it has that of its source.
    """

    name: str
    variant: manifest.GraphVariant = "cpu"
    precision: manifest.Precision = "fp32"
    alignment_heads: tuple[manifest.AttentionHead, ...] = ()
    description: str = ""
    license: str = ""
    beam_size: int | None = None
    context_separator: str = ""


def write_bundle(exportable: Exportable, samples: Sequence[Sample], out: Path, options: BundleOptions) -> Bundle:
    """Writes a bundle that appears complete or not at all; raises RunError if a direction has no golden sentence."""
    _check_separator(exportable, options.context_separator, samples)
    out.parent.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
    try:
        if exportable.shortlist is not None:
            exportable.shortlist.write(workshop / SHORTLIST_FILE)
        write = _write_import if isinstance(exportable.model, TransformerWeights) else _write_run
        contents, candidates = write(exportable, samples, workshop, options)
        for name, content in exportable.files.items():
            (workshop / name).write_bytes(content)
        _seal(workshop, contents, choose_golden(candidates, MIN_GOLDEN_GAP[options.precision]))
        workshop.chmod(0o755)
        workshop.rename(out)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return Bundle.open(out)


class Candidate(NamedTuple):
    """A sentence that may become golden; `gap` is the smallest lead of the best logit at any step."""

    sentence: manifest.GoldenSentence
    gap: float


def reproduced(bundle: Bundle) -> list[Candidate]:
    """Returns the golden sentences that the bundle translates alike; raises RunError if a direction has none left."""
    directions = directions_of(bundle.manifest)
    decoder = _decoder(bundle)
    kept = []
    for languages in dict.fromkeys(sentence.languages for sentence in bundle.golden):
        own = [sentence for sentence in bundle.golden if sentence.languages == languages]
        direction = directions.find(*languages)
        found = decoder.leads([entry.source_ids for entry in own], () if direction is None else direction.start)
        kept += [
            Candidate(entry, lead.lead)
            for entry, lead in zip(own, found, strict=True)
            if lead.answer.target_ids == entry.target_ids
        ]
    _check_kept(bundle, kept)
    return kept


def _decoder(bundle: Bundle) -> "GraphDecoder":
    from dragoman.export.graph_decoder import GraphDecoder  # noqa: PLC0415 - an fp32 export of a run needs no ONNX Runtime
    from dragoman.serve.runtime.placement import open_sessions  # noqa: PLC0415

    return GraphDecoder(open_sessions(bundle, "cpu", threads=available_cpus()), GOLDEN_ROWS)


def _check_kept(bundle: Bundle, kept: Sequence[Candidate]) -> None:
    """Raises RunError if a direction has no golden sentence left."""
    # A multilingual model has golden sentences of a few directions only.
    known = {candidate.sentence.languages for candidate in kept}
    pairs = [(direction.source, direction.target) for direction in bundle.manifest.directions]
    lost = next(("-".join(pair) for pair in pairs if pair not in known), None if kept else "")
    if lost is not None:
        problem = f"no {lost} golden sentence has the trained model's translation"
        raise RunError(f"precision: {bundle.manifest.precision}: {problem}")


def choose_golden(candidates: Sequence[Candidate], smallest_gap: float) -> list[Candidate]:
    """Returns the candidates with clear leads, or the `MIN_GOLDEN` clearest ones of a direction that has fewer."""
    chosen = []
    for languages in dict.fromkeys(candidate.sentence.languages for candidate in candidates):
        own = [candidate for candidate in candidates if candidate.sentence.languages == languages]
        clearest = sorted((candidate.gap for candidate in own), reverse=True)[:MIN_GOLDEN]
        chosen += [candidate for candidate in own if candidate.gap >= min(smallest_gap, clearest[-1])]
    return chosen


@dataclass(frozen=True, slots=True)
class _Contents:
    """The parts of a bundle except golden sentences."""

    exportable: Exportable
    options: BundleOptions
    graphs: ExportedGraphs
    tokenizer: TokenizerSpec
    alignment: dict[str, float]
    confidence: manifest.Confidence | None


_Written = tuple[_Contents, Sequence[Candidate]]


def _write_run(exportable: Exportable, samples: Sequence[Sample], folder: Path, options: BundleOptions) -> _Written:
    """Writes graphs and tokenizer of a run; returns them with the candidates that PyTorch translated."""
    translations = [
        translation
        for direction in _golden_directions(exportable, samples)
        for translation in translated(exportable, direction, _texts_of(direction, samples))
    ]
    candidates = [translation.candidate for translation in translations]
    contents = _Contents(
        exportable,
        options,
        export_model(
            exportable.model,
            options.variant,
            options.precision,
            options.alignment_heads,
            folder,
            shortlists=exportable.shortlist is not None,
        ),
        write_tokenizer(exportable.tokenizer, folder),
        {},
        confidence_of([translation.log_probability for translation in translations]),
    )
    if options.precision == "int8":
        _seal(folder, contents, candidates)
        candidates = reproduced(Bundle.open(folder))
    return contents, candidates


def _write_import(exportable: Exportable, samples: Sequence[Sample], folder: Path, options: BundleOptions) -> _Written:
    """Writes graphs and tokenizer of an import; returns them with the candidates that its native graphs translated."""
    check_options(exportable.weights.config, options.variant, options.precision, options.alignment_heads)
    if options.variant == "cpu":
        return _write_native(exportable, samples, folder, options)
    with tempfile.TemporaryDirectory(dir=folder) as native:
        contents, candidates = _write_native(exportable, samples, Path(native), BundleOptions(options.name))
    graphs = export_model(exportable.model, options.variant, options.precision, options.alignment_heads, folder)
    tokenizer = write_tokenizer(exportable.tokenizer, folder)
    return replace(contents, options=options, graphs=graphs, tokenizer=tokenizer, alignment={}), candidates


def _write_native(exportable: Exportable, samples: Sequence[Sample], folder: Path, options: BundleOptions) -> _Written:
    """Writes native graphs, which translate the samples, and measures the alignment heads unless the options have some.

    The graphs compute alignments only for requests that ask for them, so the heads cost nothing.
    """
    native = NativeExport(exportable.weights, options.precision, folder)
    shortlists = exportable.shortlist is not None
    graphs = native.write(options.alignment_heads, shortlists=shortlists)
    contents = _Contents(exportable, options, graphs, write_tokenizer(exportable.tokenizer, folder), {}, None)
    bundle = Bundle(folder, _manifest(folder, contents, {}), ())
    pairs, translations = _translate(bundle, exportable, samples)
    confidence = confidence_of([translation.log_probability for translation in translations])
    measure = HeadMeasure(exportable.weights.config, ALIGNED_SENTENCES)
    leads = read_translations(exportable.weights, pairs, measure.add)
    kept = [translation.candidate for translation, lead in zip(translations, leads, strict=True) if lead > 0]
    _check_kept(bundle, kept)
    if options.alignment_heads:
        return replace(contents, confidence=confidence), kept
    heads, quality = measure.choose(exportable.alignment_heads)
    alignment = {"alignment_coverage": quality.coverage, "alignment_entropy": quality.entropy}
    options = replace(options, alignment_heads=heads)
    graphs = native.write(heads, shortlists=shortlists)
    return replace(contents, options=options, graphs=graphs, alignment=alignment, confidence=confidence), kept


def _translate(
    bundle: Bundle, exportable: Exportable, samples: Sequence[Sample]
) -> tuple[list[Pair], list["Translated"]]:
    """Returns the translations of a bundle's graphs, as pairs of token ids too."""
    decoder = _decoder(bundle)
    pairs, translations = [], []
    for direction in _golden_directions(exportable, samples):
        fitting = _fitting(exportable, direction, _texts_of(direction, samples))
        found = decoder.leads([source_ids for _, source_ids in fitting], direction.start)
        for source, (answer, lead) in zip(fitting, found, strict=True):
            sentence = _golden(exportable, direction, source, answer.target_ids)
            pairs.append(Pair(sentence.source_ids, direction.start, sentence.target_ids))
            translations.append(Translated(Candidate(sentence, lead), fmean(answer.token_scores)))
    return pairs, translations


def _seal(folder: Path, contents: _Contents, golden: Sequence[Candidate]) -> None:
    write_golden(folder, tuple(candidate.sentence for candidate in golden))
    scores = {
        GOLDEN_SENTENCES: float(len(golden)),
        MIN_GAP: min(candidate.gap for candidate in golden),
        **contents.alignment,
    }
    write_manifest(folder, _manifest(folder, contents, scores))


class Translated(NamedTuple):
    """A sentence that may become golden, and the mean log-probability of its translation."""

    candidate: Candidate
    log_probability: float


def translated(exportable: Exportable, direction: manifest.BundleDirection, texts: Sequence[str]) -> list[Translated]:
    """Translates texts with the model of a run, without those that are too long; raises RunError if no text is left."""
    from dragoman.model.search import generate_greedy  # noqa: PLC0415 - imports have no PyTorch

    fitting = _fitting(exportable, direction, texts)
    found = generate_greedy(exportable.network, [source_ids for _, source_ids in fitting])
    return [
        Translated(
            Candidate(_golden(exportable, direction, source, result.target_ids), min(result.gaps)),
            result.score / len(result.gaps),
        )
        for source, result in zip(fitting, found, strict=True)
    ]


def _fitting(
    exportable: Exportable, direction: manifest.BundleDirection, texts: Sequence[str]
) -> list[tuple[str, tuple[int, ...]]]:
    """Returns the texts that fit the limit of the model, with their token ids; raises RunError if there is none."""
    if not texts:
        raise RunError(f"golden sentences: {direction}: no text, expected one in samples.tsv of the run or --sentences")
    longest = exportable.model.limits.max_source_tokens
    sources = ((text, exportable.source_ids(direction.source_prefix, text)) for text in texts)
    fitting = [(text, source_ids) for text, source_ids in sources if len(source_ids) <= longest]
    if not fitting:
        raise RunError(f"golden sentences: {direction}: none of {len(texts)} texts fits the limit of the model")
    return fitting


def _golden(
    exportable: Exportable,
    direction: manifest.BundleDirection,
    source: tuple[str, tuple[int, ...]],
    target_ids: tuple[int, ...],
) -> manifest.GoldenSentence:
    text, source_ids = source
    return manifest.GoldenSentence(
        source_language=direction.source,
        target_language=direction.target,
        source=text,
        source_ids=source_ids,
        target_ids=target_ids,
        target=exportable.tokenizer.decode(target_ids),
    )


def confidence_of(log_probabilities: Sequence[float]) -> manifest.Confidence | None:
    """Returns mean and standard deviation, None for one sentence; raises RunError if a probability is not finite."""
    if not all(isfinite(probability) for probability in log_probabilities):
        raise RunError("a golden sentence gets a log-probability that is not finite: the weights are damaged")
    if len(log_probabilities) == 1:
        return None
    return manifest.Confidence(mean=min(0.0, fmean(log_probabilities)), deviation=stdev(log_probabilities))


def _golden_directions(exportable: Exportable, samples: Sequence[Sample]) -> Sequence[manifest.BundleDirection]:
    """Returns all directions, or those of the samples if the model is multilingual."""
    if exportable.multilingual is None:
        return exportable.directions
    directions = directions_of(exportable)
    found = (directions.find(sample.direction.source, sample.direction.target) for sample in samples)
    return list(dict.fromkeys(result for result in found if result is not None))


def _texts_of(direction: manifest.BundleDirection, samples: Sequence[Sample]) -> list[str]:
    languages = direction.source, direction.target
    return [sample.text for sample in samples if (sample.direction.source, sample.direction.target) == languages]


def _check_separator(exportable: Exportable, separator: str, samples: Sequence[Sample]) -> None:
    """Raises RunError unless the tokenizer keeps a separator, also between sentences."""
    tokenizer, ids = exportable.tokenizer, exportable.tokenizer.encode(separator)
    kept = tokenizer.decode(tokenizer.encode_target(separator)) == separator and exportable.unk_id not in ids
    texts = {sample.text: tokenizer.encode(sample.text) for sample in samples if separator}
    apart = all(tokenizer.encode(f"{text} {separator} {text}") == [*own, *ids, *own] for text, own in texts.items())
    if not (kept and apart):
        raise RunError(f"context-separator: {separator!r}: expected a word that the tokenizer keeps")


def _manifest(folder: Path, contents: _Contents, scores: dict[str, float]) -> manifest.Manifest:
    exportable, graphs, options = contents.exportable, contents.graphs, contents.options
    model, shortlist = exportable.model, exportable.shortlist
    return manifest.Manifest(
        name=options.name,
        description=options.description or exportable.description,
        license=options.license or exportable.license,
        vocabulary_size=model.vocabulary_size,
        directions=exportable.directions,
        multilingual=exportable.multilingual,
        confidence=contents.confidence,
        beam_size=options.beam_size or exportable.beam_size,
        shortlist=shortlist and manifest.ShortlistSpec(frequent=shortlist.frequent, best=shortlist.best),
        source_suffix=exportable.source_suffix,
        context_separator=options.context_separator or exportable.context_separator,
        tokenizer=contents.tokenizer,
        cache=graphs.cache,
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
        opset=OPSET,
        encoder=graphs.encoder,
        decoder=graphs.decoder,
        shared_weights=graphs.shared_weights,
        files=dict(file_hashes(folder)),
        provenance=manifest.Provenance(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=installed_versions(LIBRARIES),
            training=exportable.training,
            steps=exportable.steps,
            scores=scores,
        ),
    )
