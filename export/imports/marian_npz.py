"""Imports Marian's own models: an .npz file, vocab.yml and SentencePiece models, as OPUS-MT publishes them.

The folder holds one .npz file, one vocabulary for both sides or two that decoder.yml lists, source.spm and target.spm.
The configuration is in the .npz file. Matrices are stored as [inputs, outputs].

Sources: CTranslate2's python/ctranslate2/converters/marian.py; Marian's src/models/transformer.h.
"""

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

import numpy as np
import yaml

from export.imports.checkpoint import check_compression
from export.imports.common import (
    Array,
    ImportedModelError,
    ImportOptions,
    Limits,
    SpecialIds,
    Tensors,
    build_transformer,
    check_pieces,
    find_directions,
    find_limits,
    find_piece,
    grown,
    importing,
    language_pieces,
    read_bytes,
    tokenizer_refused,
)
from export.imports.marian import marian_positions
from export.source_model import Exportable
from model.tokenizer.piece_tokenizer import PieceTokenizer
from model.tokenizer.tokenizer import TokenizerError
from model.weights import TransformerWeights
from serve.bundle.files import open_file

CONFIG_NAME = "special:model.yml"
DECODER_FILE = "decoder.yml"
# Of the options in a model; known ones have 10 kB.
MOST_CONFIG_BYTES = 1 << 20
EOS, UNKNOWN = "</s>", "<unk>"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu"}
# Other values make another computation. A missing option has the value listed here.
EXPECTED: dict[str, object] = {
    "type": "transformer",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-train-position-embeddings": False,
    "transformer-no-bias": False,
    "transformer-no-affine": False,
    "transformer-rnn-projection": False,
    "transformer-tied-layers": [],
    "transformer-depth-scaling": False,
    "transformer-ffn-depth": 2,
    "transformer-decoder-ffn-depth": 0,
    "lemma-dim-emb": 0,
}
# Places of dropout, which do nothing in translation, are removed from these options.
NORMS = {("", "an", ""): "post", ("n", "a", "n"): "pre"}


def is_npz_folder(folder: Path) -> bool:
    """Returns whether a folder holds a model in Marian's own format."""
    return any(folder.glob("*.npz")) and not (folder / "config.json").exists()


def import_marian_npz(folder: Path, options: ImportOptions) -> Exportable:
    """Returns the model of a folder.

    Raises:
        ImportedModelError: if the folder is no such model, or Dragoman's models do not support it.
    """
    with importing(folder):
        path = _only(folder, "*.npz")
        config, tensors = _read(path)
        paths = _vocabulary_paths(folder)
        source, target = (check_pieces(each, read_vocabulary(each)) for each in paths)
        limits = find_limits(options, None)
        sizes, eos = (len(source), len(target)), find_piece(paths[1], target, EOS)
        model = _model(Tensors(path, tensors), _fields(path, config), sizes, limits, eos)
        tokenizer = _tokenizer(folder, source, target)
        directions = find_directions(source, options, source=None, target=None)
        suffix = (find_piece(paths[0], source, EOS),)
        return Exportable.of_import("marian", dict(config), model, tokenizer, (directions, None), source_suffix=suffix)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ImportedModelError(f"{folder}: {len(found)} files {pattern}, expected one")
    return found[0]


def _read(path: Path) -> tuple[Mapping[str, object], dict[str, object]]:
    """Returns configuration and tensors of a .npz file; NumPy unpickles nothing."""
    with open_file(path) as file:
        if not zipfile.is_zipfile(file):
            raise ImportedModelError(f"{path}: expected a .npz file, which is a zip archive")
        check_compression(path, file)
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            stored: dict[str, object] = {name: archive[name] for name in archive.files}
    config = stored.pop(CONFIG_NAME, None)
    if not isinstance(config, np.ndarray):
        raise ImportedModelError(f"{path}: {CONFIG_NAME}: missing configuration")
    return _read_yaml(path, config.tobytes().rstrip(b"\0")), stored


def _read_yaml(path: Path, content: bytes) -> Mapping[str, object]:
    """Returns the options of a mapping; a list or mapping among them is replaced by the name of its type.

    Aliases let a few bytes stand for billions of values, which only a text of them would show.
    """
    if len(content) > MOST_CONFIG_BYTES:
        raise ImportedModelError(f"{path}: {len(content)} bytes of options, expected at most {MOST_CONFIG_BYTES}")
    try:
        fields = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ImportedModelError(f"{path}: not YAML: {error}") from error
    if not isinstance(fields, dict):
        raise ImportedModelError(f"{path}: expected a mapping of options")
    return {str(name): _plain(value) for name, value in fields.items() if isinstance(name, str)}


def _plain(value: object) -> object:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    return value if isinstance(value, str | int | float | bool | None) else type(value).__name__


def read_vocabulary(path: Path) -> dict[str, int]:
    """Returns the ids of the pieces in a file with lines `piece: id`, as Marian writes them.

    A piece is plain or in quotes; `? piece` and `: id` on two lines are a piece that is long.

    Raises:
        ImportedModelError: if a line is none of these.
    """
    found: dict[str, int] = {}
    long_piece = None
    for number, line in enumerate(read_bytes(path).decode().split("\n"), start=1):
        line = line.rstrip("\r")  # noqa: PLW2901 - a line of Windows
        if not line:
            continue
        if line.startswith("? "):
            long_piece = line[2:]
            continue
        piece, _, id_text = line.rpartition(":")
        try:
            found[_unquoted(piece if long_piece is None else long_piece)] = int(id_text)
        except (ValueError, yaml.YAMLError) as error:
            raise ImportedModelError(f"{path}: line {number}: expected a piece, a colon and its id") from error
        long_piece = None
    return found


def _unquoted(piece: str) -> str:
    if piece.startswith("'") and piece.endswith("'"):
        return piece[1:-1].replace("''", "'")
    if not piece.startswith('"'):
        return piece
    # JSON lacks some escapes of YAML, as \\x41; the parser of YAML is slow.
    try:
        return str(json.loads(piece))
    except ValueError:
        return str(yaml.safe_load(piece))


def _vocabulary_paths(folder: Path) -> tuple[Path, Path]:
    """Returns the vocabularies that decoder.yml lists, else the only one."""
    decoder = folder / DECODER_FILE
    names = _read_yaml(decoder, read_bytes(decoder)).get("vocabs") if decoder.exists() else None
    if isinstance(names, list) and len(names) == 2:  # noqa: PLR2004
        return folder / PurePath(names[0]).name, folder / PurePath(names[1]).name
    path = _only(folder, "*vocab*.yml")
    return path, path


def _tokenizer(folder: Path, source: tuple[str, ...], target: tuple[str, ...]) -> PieceTokenizer:
    model, target_model = (read_bytes(folder / f"{side}.spm") for side in ("source", "target"))
    special = sorted({EOS, *language_pieces(source)})
    try:
        return PieceTokenizer(model, target_model, source, target, unknown_piece=UNKNOWN, special_pieces=special)
    except TokenizerError as error:
        raise tokenizer_refused(folder, error) from error


def _model(
    tensors: Tensors, fields: Mapping[str, object], sizes: tuple[int, int], limits: Limits, eos: int
) -> TransformerWeights:
    """Returns the model, with one more token: translations start from its embedding, which is zero."""
    bos = max(sizes)
    with tensors as weights:
        parameters = dict(_Reader(weights, fields).layers())
        embeddings = _embeddings(weights, sizes, bos + 1)
    tied = len({id(value) for name, value in embeddings.items() if name.endswith("weight")}) == 1
    table = marian_positions(limits.positions, embeddings["embedding.weight"].shape[1])
    if tied:
        embeddings = {name: embeddings[name] for name in ("embedding.weight", "output_bias")}
    parameters |= embeddings | {f"{side}_positions.table": table for side in ("source", "target")}
    return build_transformer(
        {
            **fields,
            "d_model": table.shape[1],
            "d_ff": len(parameters["encoder.0.feed_forward.inner.weight"]),
            "tie_embeddings": tied,
            "max_source_tokens": limits.max_source_tokens,
            "max_target_tokens": limits.max_target_tokens,
        },
        bos + 1,
        SpecialIds(pad=bos, bos=bos, eos=eos),
        parameters,
    )


def _fields(path: Path, config: Mapping[str, object]) -> dict[str, object]:
    """Returns the `TransformerConfig` fields that the configuration determines."""
    for name, value in EXPECTED.items():
        if config.get(name, value) != value:
            raise ImportedModelError(f"{path}: {name}: {config[name]}: expected {value}")
    names = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
    norms = tuple(str(config.get(name, "")).replace("d", "") for name in names)
    if norms not in NORMS or "n" in str(config.get("transformer-postprocess-emb", "")):
        raise ImportedModelError(f"{path}: {names[1]}: {config.get(names[1])}: expected dan, or n before layers")
    activation = config.get("transformer-ffn-activation", "swish")
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ImportedModelError(f"{path}: transformer-ffn-activation: {activation}: expected {known}")
    return {
        "heads": config.get("transformer-heads"),
        "encoder_layers": config.get("enc-depth"),
        "decoder_layers": config.get("dec-depth"),
        "norm_position": NORMS[norms],
        "norm": "layer",
        "activation": ACTIVATIONS[str(activation)],
        "positions": "learned",
        "scale_embeddings": True,
        "output_bias": True,
    }


class _Reader:
    """Takes the tensors of layers by Marian's names."""

    def __init__(self, weights: Tensors, fields: Mapping[str, object]) -> None:
        self._weights = weights
        self._fields = fields

    def layers(self) -> Iterator[tuple[str, Array]]:
        """Yields the parameters of all layers by Dragoman's names."""
        for side in ("encoder", "decoder"):
            for number in range(int(str(self._fields[f"{side}_layers"]))):
                ours, theirs = f"{side}.{number}", f"{side}_l{number + 1}"
                yield from self._attention(f"{ours}.self_attention", f"{theirs}_self")
                if side == "decoder":
                    yield from self._attention(f"{ours}.cross_attention", f"{theirs}_context")
                yield from self._linear(f"{ours}.feed_forward.inner", f"{theirs}_ffn", "1")
                yield from self._linear(f"{ours}.feed_forward.outer", f"{theirs}_ffn", "2")
                yield from self._norm(f"{ours}.feed_forward_residual.norm", f"{theirs}_ffn_ffn_ln")
            if self._fields["norm_position"] == "pre":
                yield from self._norm(f"{side}_norm", f"{side}_top_ln")

    def _attention(self, ours: str, theirs: str) -> Iterator[tuple[str, Array]]:
        for part in ("query", "key", "value", "output"):
            yield from self._linear(f"{ours}.{part}", theirs, part[0])
        yield from self._norm(f"{ours}_residual.norm", f"{theirs}_Wo_ln")

    def _linear(self, ours: str, theirs: str, suffix: str) -> Iterator[tuple[str, Array]]:
        yield f"{ours}.weight", self._weights.take_matrix(f"{theirs}_W{suffix}").T
        yield f"{ours}.bias", self._weights.take(f"{theirs}_b{suffix}").reshape(-1)

    def _norm(self, ours: str, theirs: str) -> Iterator[tuple[str, Array]]:
        # A normalization before a layer has a suffix in its name.
        suffix = "_pre" if self._weights.has(f"{theirs}_scale_pre") else ""
        for part, name in (("weight", "scale"), ("bias", "bias")):
            yield f"{ours}.{part}", self._weights.take(f"{theirs}_{name}{suffix}").reshape(-1)


def _embeddings(weights: Tensors, sizes: tuple[int, int], rows: int) -> dict[str, Array]:
    """Returns the embeddings, the output matrix and its bias for `rows` tokens; tied ones are the same array."""
    shared = grown(weights.take_matrix("Wemb"), rows) if weights.has("Wemb") else None
    found: dict[str, Array] = {}
    for ours, theirs in (("embedding", "encoder"), ("target_embedding", "decoder")):
        own = f"{theirs}_Wemb"
        matrix = grown(weights.take_matrix(own), rows) if weights.has(own) else shared
        found[f"{ours}.weight"] = grown(weights.take_matrix("Wemb"), rows) if matrix is None else matrix
    output: Array = found["target_embedding.weight"]
    if weights.has("decoder_ff_logit_out_Wt"):
        output = grown(weights.take_matrix("decoder_ff_logit_out_Wt"), rows)
    elif weights.has("decoder_ff_logit_out_W"):
        output = grown(weights.take_matrix("decoder_ff_logit_out_W").T, rows)
    bias = np.full(rows, -np.inf, np.float32)
    bias[: sizes[1]] = weights.take("decoder_ff_logit_out_b").reshape(-1)
    return found | {"output.weight": output, "output_bias": bias}
