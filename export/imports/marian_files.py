"""Imports Marian's own models, as OPUS-MT and Firefox Translations publish them.

A folder holds one .npz or .bin file, with the configuration in it, and vocabularies. Matrices are stored as
[inputs, outputs].

Sources: CTranslate2's python/ctranslate2/converters/marian.py; Marian's src/models/transformer.h and src/rnn/cells.h.
"""

import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from io import BufferedReader
from pathlib import Path

import numpy as np

from dragoman.export.imports import common
from dragoman.export.imports.checkpoint import check_compression
from dragoman.export.imports.marian_bin import read_marian_bin
from dragoman.export.imports.marian_folder import weight_paths
from dragoman.export.imports.marian_shortlist import read_marian_shortlist
from dragoman.export.imports.marian_vocabulary import read_options, read_vocabularies
from dragoman.export.imports.stored import ArrayFile, StoredArray, member_offset
from dragoman.export.source_model import Exportable
from dragoman.model.config import InnerActivation, Memory
from dragoman.model.tokenizer.tokenizer import SpecialIds
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.files import open_file, read_file

CONFIG_NAME = "special:model.yml"
# The limit of a file with 8-bit weights; the largest known one has 60 MB.
MAX_BIN_BYTES = 1 << 30
ACTIVATIONS: dict[str, InnerActivation] = {"relu": "relu", "gelu": "gelu", "swish": "silu"}
# The sub-layers by which a decoder reads earlier positions.
MEMORIES: dict[str, Memory] = {"self-attention": "self_attention", "rnn": "ssru"}
# The option for each place of a normalization, and its value without dropout, which does nothing in translation.
NORMS = {"transformer-postprocess-emb": "", "transformer-postprocess": "an", "transformer-postprocess-top": ""}


def import_marian_files(folder: Path, options: common.ImportOptions) -> Exportable:
    """Returns the model of a folder; raises ImportedModelError if the folder has none, or it is not supported."""
    with common.importing(folder):
        paths = weight_paths(folder)
        if len(paths) != 1:
            raise common.ImportedModelError(f"{folder}: {len(paths)} files *.npz or *.bin, expected one")
        config, tensors = _read(paths[0])
        vocabularies = read_vocabularies(folder)
        sizes = (len(vocabularies.source), len(vocabularies.target))
        read = _read_options(paths[0], config)
        model = _model(
            common.Tensors(paths[0], tensors), read, sizes, common.find_limits(options, None), vocabularies.target_eos
        )
        directions = common.find_directions(vocabularies.source, options)
        suffix, tokenizer = (vocabularies.source_eos,), vocabularies.tokenizer
        found = Exportable.of_import("marian", dict(config), model, tokenizer, (directions, None), source_suffix=suffix)
        return replace(found, shortlist=read_marian_shortlist(folder, vocabularies, model.vocabulary_size))


def _read(path: Path) -> tuple[Mapping[str, object], dict[str, object]]:
    stored = _read_npz(path) if path.suffix == ".npz" else read_marian_bin(path, read_file(path, MAX_BIN_BYTES))
    config = stored.pop(CONFIG_NAME, None)
    if config is None:
        raise common.ImportedModelError(f"{path}: {CONFIG_NAME}: missing configuration")
    return read_options(path, np.asarray(config).tobytes().rstrip(b"\0")), stored


def _read_npz(path: Path) -> dict[str, object]:
    """Returns the tensors of a .npz file, which stay there."""
    with open_file(path) as file:
        if not zipfile.is_zipfile(file):
            raise common.ImportedModelError(f"{path}: expected a .npz file, which is a zip archive")
        check_compression(path, file)
        stored = ArrayFile(file)
        with zipfile.ZipFile(file) as archive:
            return {
                name.removesuffix(".npy"): _stored(file, member_offset(file, archive, name), stored)
                for name in archive.namelist()
            }


def _stored(file: BufferedReader, offset: int, stored: ArrayFile) -> StoredArray:
    """Returns the array of a .npy file at an offset of a file."""
    file.seek(offset)
    is_first = np.lib.format.read_magic(file) == (1, 0)
    read_header = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
    shape, is_fortran, kind = read_header(file)
    return stored.array(file.tell(), kind, shape, "F" if is_fortran else "C")


def _model(
    tensors: common.Tensors, fields: Mapping[str, object], sizes: tuple[int, int], limits: common.Limits, eos: int
) -> TransformerWeights:
    """Returns the model, with one more token: translations start from its embedding, which is zero."""
    bos = max(sizes)
    with tensors as weights:
        parameters: dict[str, common.Parameter] = dict(_LayerReader(weights, fields).layers())
        embeddings, is_tied = _embeddings(weights, sizes, bos + 1)
    # `transformers` and CTranslate2's converter have slightly other angles, those of Vaswani et al. 2017.
    table = common.sinusoids(limits.positions, embeddings["embedding.weight"].shape[1], first=0)
    parameters |= embeddings | {f"{side}_positions.table": table for side in ("source", "target")}
    return common.build_transformer(
        {
            **fields,
            "d_model": table.shape[1],
            "d_ff": len(parameters["encoder.0.feed_forward.inner.weight"]),
            "tie_embeddings": is_tied,
        },
        limits,
        bos + 1,
        SpecialIds(pad=bos, bos=bos, eos=eos),
        parameters,
    )


def _read_options(path: Path, config: Mapping[str, object]) -> dict[str, object]:
    """Returns the fields of a `TransformerConfig` that the configuration determines."""
    autoregression = str(config.get("transformer-decoder-autoreg", "self-attention"))
    if autoregression not in MEMORIES:
        known = ", ".join(MEMORIES)
        raise common.ImportedModelError(f"{path}: transformer-decoder-autoreg: {autoregression}: expected {known}")
    memory = MEMORIES[autoregression]
    units = common.EXPECTED["marian units"] if memory == "ssru" else {}
    for name, value in (common.EXPECTED["marian files"] | units).items():
        if config.get(name, value) != value:
            raise common.ImportedModelError(f"{path}: {name}: {config[name]}: expected {value or 'none'}")
    for name, value in NORMS.items():
        if str(config.get(name, "")).replace("d", "") != value:
            raise common.ImportedModelError(f"{path}: {name}: {config.get(name)}: expected d{value}")
    activation = config.get("transformer-ffn-activation", "swish")
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise common.ImportedModelError(f"{path}: transformer-ffn-activation: {activation}: expected {known}")
    heads = config.get("transformer-heads")
    if not isinstance(heads, int) or heads < 1:
        raise common.ImportedModelError(f"{path}: transformer-heads: {heads}: expected a number above 0")
    return {
        "heads": heads,
        "activation": ACTIVATIONS[str(activation)],
        "encoder_layers": config.get("enc-depth"),
        "decoder_layers": config.get("dec-depth"),
        "norm_position": "post",
        "norm": "layer",
        "positions": "learned",
        "scale_embeddings": True,
        "output_bias": True,
        "decoder_memory": memory,
    }


class _LayerReader:
    """Takes the tensors of layers by Marian's names."""

    def __init__(self, weights: common.Tensors, fields: Mapping[str, object]) -> None:
        self._weights = weights
        self._fields = fields

    def layers(self) -> Iterator[tuple[str, common.Parameter]]:
        """Yields the parameters of all layers by Dragoman's names."""
        for side in ("encoder", "decoder"):
            for number in range(int(str(self._fields[f"{side}_layers"]))):
                ours, theirs = f"{side}.{number}", f"{side}_l{number + 1}"
                if side == "decoder" and self._fields["decoder_memory"] == "ssru":
                    yield from self._ssru(f"{ours}.ssru", f"{theirs}_rnn")
                else:
                    yield from self._attention(f"{ours}.self_attention", f"{theirs}_self")
                if side == "decoder":
                    yield from self._attention(f"{ours}.cross_attention", f"{theirs}_context")
                yield from self._linear(f"{ours}.feed_forward.inner", f"{theirs}_ffn", "1")
                yield from self._linear(f"{ours}.feed_forward.outer", f"{theirs}_ffn", "2")
                yield from self._norm(f"{ours}.feed_forward_residual.norm", f"{theirs}_ffn_ffn_ln")

    def _attention(self, ours: str, theirs: str) -> Iterator[tuple[str, common.Parameter]]:
        for part in ("query", "key", "value", "output"):
            yield from self._linear(f"{ours}.{part}", theirs, part[0])
        yield from self._norm(f"{ours}_residual.norm", f"{theirs}_Wo_ln")

    def _ssru(self, ours: str, theirs: str) -> Iterator[tuple[str, common.Parameter]]:
        matrix = self._weights.take_matrix(f"{theirs}_W").T
        yield f"{ours}.input.weight", matrix
        yield f"{ours}.input.bias", np.zeros(len(matrix), np.float32)
        yield from self._linear(f"{ours}.forget", theirs, "f")
        yield from self._norm(f"{ours}_residual.norm", f"{theirs}_ffn_ln")

    def _linear(self, ours: str, theirs: str, suffix: str) -> Iterator[tuple[str, common.Parameter]]:
        yield f"{ours}.weight", self._weights.take_matrix(f"{theirs}_W{suffix}").T
        yield f"{ours}.bias", self._weights.take(f"{theirs}_b{suffix}").read().reshape(-1)

    def _norm(self, ours: str, theirs: str) -> Iterator[tuple[str, common.Parameter]]:
        for part, name in (("weight", "scale"), ("bias", "bias")):
            yield f"{ours}.{part}", self._weights.take(f"{theirs}_{name}").read().reshape(-1)


def _embeddings(weights: common.Tensors, sizes: tuple[int, int], rows: int) -> tuple[dict[str, common.Parameter], bool]:
    """Returns the embeddings, the output matrix and its bias for `rows` tokens, and whether the matrices are tied."""
    shared = weights.take_matrix("Wemb") if weights.has("Wemb") else None
    source, target = (
        weights.take_matrix(name) if shared is None or weights.has(name) else shared
        for name in ("encoder_Wemb", "decoder_Wemb")
    )
    output = target
    if weights.has("decoder_ff_logit_out_Wt"):
        output = weights.take_matrix("decoder_ff_logit_out_Wt")
    elif weights.has("decoder_ff_logit_out_W"):
        output = weights.take_matrix("decoder_ff_logit_out_W").T
    bias = np.full(rows, -np.inf, np.float32)
    bias[: sizes[1]] = weights.take("decoder_ff_logit_out_b").read().reshape(-1)
    matrices, is_tied = common.embeddings(source, target, output, rows)
    return {**matrices, "output_bias": bias}, is_tied
