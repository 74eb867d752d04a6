"""Random models of Marian's kind, and their files for Bergamot and Marian.

Marian starts a translation from a zero embedding, and computes positions by its own formula. EOS and the unknown token
have a bias that forbids them, so that every translation ends at its limit: 1.5 times the tokens of its source. Sources
and shortlists are drawn from Zipf distributions. A list of 1, 8, 32 and 128 sources has 283, 1,277, 3,232 and 7,400
candidates; lists from the word links of English-German texts have 282, 1,257, 3,314 and 7,400.

Sources: Marian's src/models/transformer.h and src/common/binary.cpp.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from benchmarks.systems.peer_system import MODEL_FILES, VOCABULARY_FILE, Peer
from benchmarks.systems.translating import FIRST_PIECE, SourceSentence
from dragoman.export.imports.common import sinusoids
from dragoman.export.imports.marian_files import CONFIG_NAME
from dragoman.model.config import TransformerConfig
from dragoman.model.network.transformer import Transformer
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from dragoman.serve.bundle.manifest import Precision
from dragoman.serve.bundle.shortlist import Shortlist

NAMES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("marian.yaml").read_text("utf-8"))
SEED, FORBIDDEN = 7, -1000.0
# EOS included, and excluded.
SOURCE_TOKENS, TARGET_TOKENS = 16, 24
LIMITS = {"max_source_tokens": SOURCE_TOKENS, "max_target_tokens": TARGET_TOKENS}
# A list has the frequent tokens, and `DRAWS` random ones per source token. A law has the shift and exponent of draws.
FREQUENT, DRAWS, SOURCE_LAW, LIST_LAW = 50, 20, (2, 1.0), (20, 1.1)
# Marian's types of tensors, and its largest number of 8 bits, that of six deviations of a normalized activation.
FLOAT, INT8, QUANTIZED, LARGEST = 0x0404, 0x0101, 0x4101, 127
INPUT_SCALE = np.float32(LARGEST / 6).tobytes()
# Name, type, shape and data of a tensor.
Entry = tuple[str, int, Sequence[int], bytes]


@torch.no_grad()
def student(config: TransformerConfig, vocabulary_size: int) -> Transformer:
    """Returns a random model whose translations depend on their sources."""
    torch.manual_seed(SEED)
    model = Transformer(
        config.model_copy(update={"positions": "learned", "output_bias": True, **LIMITS}), vocabulary_size, PAD_ID
    ).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("ssru.input.bias"):
            parameter.zero_()  # Marian has none
        elif name == "output_bias":
            parameter[[PAD_ID, UNK_ID, BOS_ID, EOS_ID]] = FORBIDDEN
    model.embedding.weight[BOS_ID] = 0
    for positions in (model.source_positions, model.target_positions):
        positions.table.copy_(torch.from_numpy(sinusoids(len(positions.table), config.d_model, first=0)))
    return model


def _draw(random: np.random.Generator, law: tuple[int, float], size: tuple[int, int], tokens: int) -> NDArray[np.int64]:
    """Returns ids; the probability of piece r is proportional to 1 / (r + shift)^exponent."""
    shift, exponent = law
    shares = (np.arange(tokens - FIRST_PIECE) + shift) ** -exponent
    return FIRST_PIECE + random.choice(tokens - FIRST_PIECE, size, p=shares / shares.sum())


def draw_sources(count: int, vocabulary_size: int) -> list[SourceSentence]:
    """Returns sentences of equal length."""
    rows = _draw(np.random.default_rng(SEED), SOURCE_LAW, (count, SOURCE_TOKENS - 1), vocabulary_size)
    return [SourceSentence((*row, EOS_ID), 0, TARGET_TOKENS) for row in rows.tolist()]


def draw_shortlist(vocabulary_size: int) -> Shortlist:
    """Returns a list in which each token is its own candidate, as Marian adds it."""
    rows = _draw(np.random.default_rng(SEED), LIST_LAW, (vocabulary_size, DRAWS), vocabulary_size)
    return Shortlist.of(min(FREQUENT, vocabulary_size), [[token, *row] for token, row in enumerate(rows.tolist())])


def tensors_of(model: Transformer) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yields the parameters of a `student` by Marian's names; matrices are [inputs, outputs]."""
    for name, parameter in model.state_dict().items():
        value: NDArray[np.float32] = np.atleast_2d(parameter.numpy())
        if name == "embedding.weight":
            yield "Wemb", value
        elif name == "output_bias":
            yield "decoder_ff_logit_out_b", value
        elif not name.startswith(("source_", "target_")) and not name.endswith("ssru.input.bias"):
            side, number, module, part, kind = name.split(".")
            layer = f"{side}_l{int(number) + 1}"
            if part == "norm":
                yield f"{layer}_{NAMES['norms'][module]}_ln_{'scale' if kind == 'weight' else kind}", value
            else:
                theirs = f"{layer}_{NAMES['modules'][module]}_{'W' if kind == 'weight' else 'b'}{NAMES['parts'][part]}"
                yield theirs, np.ascontiguousarray(value.T) if kind == "weight" else value


def write_files(folder: Path, model: Transformer, vocabulary: bytes, peer: Peer, precision: Precision) -> None:
    """Writes the files of a peer into a new folder; `vocabulary` is a SentencePiece model."""
    folder.mkdir(parents=True)
    config, tensors = model.config, dict(tensors_of(model))
    sizes = {theirs: getattr(config, field) for theirs, field in NAMES["fields"].items()}
    sizes |= {"dim-vocabs": [model.vocabulary_size] * 2}
    sizes |= {"transformer-decoder-autoreg": NAMES["memories"][config.decoder_memory]}
    options = np.frombuffer(yaml.safe_dump(NAMES["options"] | sizes).encode() + b"\0", np.int8)
    (folder / VOCABULARY_FILE).write_bytes(vocabulary)
    stored: dict[str, Any] = {CONFIG_NAME: options, **tensors}
    if peer == "marian":
        np.savez(folder / MODEL_FILES[peer], **stored)
    else:
        (folder / MODEL_FILES[peer]).write_bytes(binary_file(stored, floats=precision == "fp32", scales=True))


def binary_file(stored: Mapping[str, NDArray[Any]], *, floats: bool = False, scales: bool = False) -> bytes:
    """Returns Marian's binary file, with matrices in 8 bits unless `floats`, and with scales of their inputs."""
    entries: list[Entry] = []
    for name, value in stored.items():
        if value.dtype == np.int8 or floats or len(value) == 1:
            entries.append((name, INT8 if value.dtype == np.int8 else FLOAT, value.shape, value.tobytes()))
            continue
        factor = np.float32(LARGEST / np.abs(value).max())
        rounded = np.rint(value * factor).clip(-LARGEST, LARGEST).astype(np.int8)
        integers = (rounded if "Wemb" in name else rounded.T).tobytes()
        entries.append((name, QUANTIZED, value.shape, integers + factor.tobytes()))
        scaled = [name, *(["none"] if "Wemb" in name else [])] if scales else []
        entries += [(f"{scale}_QuantMultA", FLOAT, (1, 1), INPUT_SCALE) for scale in scaled]
    return join_entries(entries)


def join_entries(entries: Sequence[Entry]) -> bytes:
    """Returns a file of names, types, shapes and data; each datum is filled up to a multiple of 256 bytes."""
    filled = [
        (name.encode() + b"\0", kind, shape, data + bytes(-len(data) % 256)) for name, kind, shape, data in entries
    ]
    head = struct.pack("<2Q", 1, len(filled))
    head += b"".join(struct.pack("<4Q", len(name), kind, len(shape), len(data)) for name, kind, shape, data in filled)
    head += b"".join(name for name, *_ in filled)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in filled)
    padding = -(len(head) + 8) % 256
    return head + struct.pack("<Q", padding) + bytes(padding) + b"".join(data for *_, data in filled)
