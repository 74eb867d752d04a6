"""Shared code of the importers of Hugging Face checkpoints: the configuration, the parameters and the layers.

The models of the library that descend from BART have the same names of fields and parameters.
"""

import zipfile
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dragoman.export.imports.common import ImportedModelError, Tensors, read_fields
from dragoman.export.imports.pickled import read_pickled
from dragoman.export.imports.safe import read_safetensors
from dragoman.export.imports.shards import WEIGHT_FILES, is_index, read_index
from dragoman.export.imports.stored import StoredArray
from dragoman.export.source_model import Languages
from dragoman.model.errors import reason_of
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import SpecialIds
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.files import open_file
from dragoman.serve.bundle.manifest import MAX_TOKENS, MAX_VOCABULARY

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
SAFETENSORS_SUFFIX = ".safetensors"

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
# Names of the embeddings and of the output matrix. A checkpoint stores a tied matrix under one of them or under all.
SHARED, SOURCE, TARGET, OUTPUT = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)

# A model, its tokenizer, its languages, and the tokens after every source.
Imported = tuple[TransformerWeights, PieceTokenizer, Languages, tuple[int, ...]]


def _first_eos(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


class StoredConfig(BaseModel):
    """The fields of config.json that determine the computation of a model."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    vocab_size: int = Field(gt=0, le=MAX_VOCABULARY)
    pad_token_id: int = Field(ge=0)
    eos_token_id: Annotated[int, BeforeValidator(_first_eos)] = Field(ge=0)
    decoder_start_token_id: int = Field(ge=0)

    @property
    def target_size(self) -> int:
        """The size of the target vocabulary."""
        return self.vocab_size

    @property
    def special(self) -> SpecialIds:
        """The special tokens."""
        return SpecialIds(self.pad_token_id, self.decoder_start_token_id, self.eos_token_id)

    def check(self, path: Path) -> None:
        """Checks that the fields fit together; raises ImportedModelError naming the field."""
        for name, size in (
            ("pad_token_id", self.vocab_size),
            ("eos_token_id", self.target_size),
            ("decoder_start_token_id", self.target_size),
        ):
            if getattr(self, name) >= size:
                raise ImportedModelError(f"{path}: {name}: {getattr(self, name)}: expected an id below {size}")


class CheckpointConfig(StoredConfig):
    """The fields that every descendant of BART has."""

    d_model: int = Field(gt=0)
    encoder_layers: int = Field(gt=0)
    decoder_layers: int = Field(gt=0)
    encoder_attention_heads: int = Field(gt=0)
    decoder_attention_heads: int = Field(gt=0)
    encoder_ffn_dim: int = Field(gt=0)
    decoder_ffn_dim: int = Field(gt=0)
    activation_function: str
    max_position_embeddings: int = Field(gt=1, le=MAX_TOKENS)
    scale_embedding: bool = False

    @property
    def transformer_fields(self) -> dict[str, object]:
        """The fields of a `TransformerConfig` that every such model determines."""
        return {
            "d_model": self.d_model,
            "d_ff": self.encoder_ffn_dim,
            "heads": self.encoder_attention_heads,
            "encoder_layers": self.encoder_layers,
            "decoder_layers": self.decoder_layers,
            "norm": "layer",
            "activation": ACTIVATIONS[self.activation_function],
            "positions": "learned",
            "scale_embeddings": self.scale_embedding,
        }

    def check(self, path: Path) -> None:
        """Checks that the fields fit together; raises ImportedModelError naming the field."""
        for name in ("attention_heads", "ffn_dim"):
            encoder, decoder = getattr(self, f"encoder_{name}"), getattr(self, f"decoder_{name}")
            if encoder != decoder:
                raise ImportedModelError(f"{path}: decoder_{name}: {decoder}: expected {encoder} as in the encoder")
        if self.activation_function not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ImportedModelError(f"{path}: activation_function: {self.activation_function}: expected {known}")
        super().check(path)


Config = TypeVar("Config", bound=StoredConfig)


def read_config(
    folder: Path, kind: type[Config], expected: Mapping[str, object], expected_search: Mapping[str, object]
) -> Config:
    """Reads and checks the configuration; raises ImportedModelError naming the field.

    Fields of generation_config.json precede those of config.json. A missing field has the expected value.
    """
    path = folder / CONFIG_FILE
    fields, generation = read_fields(path), read_optional_fields(folder / GENERATION_FILE)
    _expect(path, fields, expected)
    _expect(path, fields, expected_search)
    _expect(folder / GENERATION_FILE, generation, expected_search)
    chosen = {name: generation[name] for name in ("bad_words_ids", "decoder_start_token_id") if generation.get(name)}
    try:
        config = kind.model_validate({**fields, **chosen})
    except ValidationError as error:
        first = error.errors()[0]
        given = "" if first["type"] == "missing" else f" (given: {first['input']!r})"
        raise ImportedModelError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}{given}") from error
    config.check(path)
    return config


def read_optional_fields(path: Path) -> dict[str, object]:
    """Returns the JSON object of a file; an empty one if there is no file."""
    return read_fields(path) if path.exists() else {}


def _expect(path: Path, fields: Mapping[str, object], expected: Mapping[str, object]) -> None:
    for name, value in expected.items():
        actual = fields.get(name)
        if actual is not None and actual != value:
            raise ImportedModelError(f"{path}: {name}: {actual}: expected {value}")


def read_tensors(folder: Path) -> Tensors:
    """Returns the parameters, which stay in their files; raises ImportedModelError if they are missing or damaged."""
    path = next((folder / name for name in WEIGHT_FILES if (folder / name).exists()), None)
    if path is None:
        raise ImportedModelError(f"{folder}: expected one of {', '.join(WEIGHT_FILES)}")
    return Tensors(path, _read_shards(path) if is_index(path.name) else _read_file(path))


def _read_shards(index: Path) -> dict[str, object]:
    """Returns the tensors of all shards; each shard must have those that the index names, and no others."""
    try:
        shards = read_index(index)
    except (OSError, ValueError) as error:
        raise ImportedModelError(f"{index}: cannot be read: {reason_of(error)}") from error
    found: dict[str, object] = {}
    for name, expected in sorted(shards.items()):
        path = index.with_name(name)
        tensors = _read_file(path)
        if wrong := tensors.keys() ^ expected:
            problem = "missing in the index" if min(wrong) in tensors else "missing tensor"
            raise ImportedModelError(f"{path}: {min(wrong)}: {problem}")
        found |= tensors
    return found


def _read_file(path: Path) -> dict[str, object]:
    try:
        with open_file(path) as file:
            if path.suffix == SAFETENSORS_SUFFIX:
                return dict(read_safetensors(file))
            check_compression(path, file)
            return read_pickled(file)
    except ImportedModelError:
        raise
    except Exception as error:  # damaged files raise exceptions of any type
        raise ImportedModelError(f"{path}: cannot be read: {error}") from error


def check_compression(path: Path, file: BufferedReader) -> None:
    """Refuses a checkpoint that is larger in memory than on disk: neither PyTorch nor Marian compresses any."""
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file) as archive:
        size_bytes, max_bytes = sum(member.file_size for member in archive.infolist()), path.stat().st_size
    if size_bytes > max_bytes:
        raise ImportedModelError(f"{path}: unpacks to {size_bytes} bytes, expected at most {max_bytes}")


def read_layers(tensors: Tensors, config: CheckpointConfig) -> Iterator[tuple[str, StoredArray]]:
    """Yields the parameters of all layers by Dragoman's names."""
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(layers):
            ours, theirs = f"{side}.{layer}", f"model.{side}.layers.{layer}"
            attentions = {"self_attention": "self_attn"}
            if side == "decoder":
                attentions["cross_attention"] = "encoder_attn"
            for attention, name in attentions.items():
                for part in ("query", "key", "value"):
                    yield from read_linear(tensors, f"{ours}.{attention}.{part}", f"{theirs}.{name}.{part[0]}_proj")
                yield from read_linear(tensors, f"{ours}.{attention}.output", f"{theirs}.{name}.out_proj")
                yield from read_linear(tensors, f"{ours}.{attention}_residual.norm", f"{theirs}.{name}_layer_norm")
            yield from read_linear(tensors, f"{ours}.feed_forward.inner", f"{theirs}.fc1")
            yield from read_linear(tensors, f"{ours}.feed_forward.outer", f"{theirs}.fc2")
            yield from read_linear(tensors, f"{ours}.feed_forward_residual.norm", f"{theirs}.final_layer_norm")


def read_linear(tensors: Tensors, ours: str, theirs: str) -> Iterator[tuple[str, StoredArray]]:
    """Yields weight and bias of a linear layer or a normalization."""
    for part in ("weight", "bias"):
        yield f"{ours}.{part}", tensors.take(f"{theirs}.{part}")


def first_stored(tensors: Tensors, stored: dict[str, StoredArray | None], rows: int, *names: str) -> StoredArray:
    """Returns the first matrix that exists under one of the names; raises ImportedModelError if there is none."""
    found = next((stored[name] for name in names if stored[name] is not None), None)
    matrix = tensors.take(names[0]) if found is None else found
    if len(matrix) != rows:
        raise ImportedModelError(f"{names[0]}: shape is {matrix.shape}, expected {rows} rows")
    return matrix


def special_piece(settings: dict[str, object], field: str, usual: str) -> str:
    """Returns a special token of tokenizer_config.json, which is a string or an object with the field `content`."""
    token = settings.get(field, usual)
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else usual
