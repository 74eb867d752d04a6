"""Small models as Firefox Translations has them, in Marian's own formats: random ones and a trained one.

The decoder has recurrent units (SSRU) instead of self-attention. `Student` follows Marian's equations, batch by batch,
and can be trained.

Sources: Marian's src/models/transformer.h and src/rnn/cells.h.

Shapes: B sentences, S source length, T target length, V vocabulary.
"""

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
import yaml
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2
from torch import Tensor, nn

from benchmarks.systems.marian_system import binary_file
from dragoman.export.imports.marian_files import CONFIG_NAME
from dragoman.serve.bundle.shortlist import Shortlist
from tests.support.cases import cases
from tests.support.large_models import Form, random_tensors
from tests.support.marian import EOS_ID, make_texts, marian_pieces, translate_words
from tests.support.small_models import fill

CONFIG: dict[str, Any] = cases(__file__)
PIECES, LAYERS = CONFIG["dim-vocabs"][0], CONFIG["enc-depth"]
WIDTH, INNER, HEADS = (CONFIG[name] for name in ("dim-emb", "transformer-dim-ffn", "transformer-heads"))
FORM = Form(WIDTH, INNER, LAYERS, HEADS, PIECES)
BIN_FILE, VOCABULARY_FILE = "model.ende.intgemm.alphas.bin", "vocab.ende.spm"


@cache
def student_pieces() -> bytes:
    """Returns the SentencePiece model of both sides, with the ids of the network."""
    texts = make_texts(1, 200)
    return marian_pieces((*texts, *map(translate_words, texts)), PIECES)


def encode(text: str) -> list[int]:
    return [*sentencepiece.SentencePieceProcessor(model_proto=student_pieces()).encode(text), EOS_ID]


def student_shapes(form: Form, decoder_layers: int | None = None) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yields the parameters of a model under Marian's names; the decoder has as many layers as the encoder if None."""
    width, inner, layers, _, vocabulary = form
    square, row = (width, width), (1, width)

    def norm(name: str) -> Iterator[tuple[str, tuple[int, int]]]:
        yield from ((f"{name}_ln_{part}", row) for part in ("scale", "bias"))

    yield from (("Wemb", (vocabulary, width)), ("decoder_ff_logit_out_b", (1, vocabulary)))
    for side, attention, count in (("encoder", "self", layers), ("decoder", "context", decoder_layers or layers)):
        for layer in (f"{side}_l{number + 1}" for number in range(count)):
            yield from ((f"{layer}_{attention}_W{part}", square) for part in "qkvo")
            yield from ((f"{layer}_{attention}_b{part}", row) for part in "qkvo")
            yield from norm(f"{layer}_{attention}_Wo")
            if side == "decoder":
                yield from ((f"{layer}_rnn_W", square), (f"{layer}_rnn_Wf", square), (f"{layer}_rnn_bf", row))
                yield from norm(f"{layer}_rnn_ffn")
            yield from ((f"{layer}_ffn_W1", (width, inner)), (f"{layer}_ffn_b1", (1, inner)))
            yield from ((f"{layer}_ffn_W2", (inner, width)), (f"{layer}_ffn_b2", row))
            yield from norm(f"{layer}_ffn_ffn")


class Student(nn.Module):
    """A Transformer with recurrent units, its parameters under Marian's names."""

    def __init__(self, seed: int = 3, form: Form = FORM, decoder_layers: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.weights = nn.ParameterDict(
            {name: nn.Parameter(torch.empty(shape)) for name, shape in student_shapes(form, decoder_layers)}
        )
        for name, parameter in self.weights.items():
            if name == "Wemb":
                nn.init.normal_(parameter, std=0.2)
            elif "_ln_scale" in name:
                nn.init.normal_(parameter, std=1.0)
            elif parameter.shape[0] == 1:
                nn.init.normal_(parameter, std=0.3)
            else:
                nn.init.xavier_normal_(parameter, gain=2.0)
        # Some translations end at once, some late, some never.
        with torch.no_grad():
            self.weights["decoder_ff_logit_out_b"][0, EOS_ID] = 2.0

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Maps sources [B, S] and targets so far [B, T] to the logits of tokens 0 to T, [B, T + 1, V]."""
        return self.decode(self.encode(source, lengths), lengths, target)

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        """Returns the memory of sources, [B, S, WIDTH]."""
        states = self._embed(self.weights["Wemb"][source])
        for number in range(1, LAYERS + 1):
            layer = f"encoder_l{number}"
            states = self._residual(f"{layer}_self_Wo", states, self._attend(f"{layer}_self", states, states, lengths))
            states = self._feed_forward(f"{layer}_ffn", states)
        return states

    def decode(self, memory: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Returns the logits of tokens 0 to T, [B, T + 1, V]; the embedding before the first token is zero."""
        table = self.weights["Wemb"]
        states = self._embed(nn.functional.pad(table[target], (0, 0, 1, 0)))
        for number in range(1, LAYERS + 1):
            layer = f"decoder_l{number}"
            states = self._residual(f"{layer}_rnn_ffn", states, self._recur(f"{layer}_rnn", states))
            attended = self._attend(f"{layer}_context", states, memory, lengths)
            states = self._residual(f"{layer}_context_Wo", states, attended)
            states = self._feed_forward(f"{layer}_ffn", states)
        logits: Tensor = states @ table.T + self.weights["decoder_ff_logit_out_b"]
        return logits

    def _affine(self, states: Tensor, name: str, part: str) -> Tensor:
        found: Tensor = states @ self.weights[f"{name}_W{part}"] + self.weights[f"{name}_b{part}"]
        return found

    def _embed(self, embedded: Tensor) -> Tensor:
        half = WIDTH // 2
        rates = torch.exp(torch.arange(half) * (-math.log(10000.0) / (half - 1)))
        angles = torch.arange(embedded.shape[1])[:, None] * rates
        return embedded * math.sqrt(WIDTH) + torch.cat((angles.sin(), angles.cos()), dim=1).to(embedded.dtype)

    def _residual(self, name: str, states: Tensor, added: Tensor) -> Tensor:
        scale, bias = (self.weights[f"{name}_ln_{part}"][0] for part in ("scale", "bias"))
        return nn.functional.layer_norm(states + added, (WIDTH,), scale, bias, eps=1e-5)

    def _feed_forward(self, name: str, states: Tensor) -> Tensor:
        inner = self._affine(states, name, "1").relu()
        return self._residual(f"{name}_ffn", states, self._affine(inner, name, "2"))

    def _recur(self, name: str, states: Tensor) -> Tensor:
        new = states @ self.weights[f"{name}_W"]
        share = torch.sigmoid(self._affine(states, name, "f"))
        cell, found = torch.zeros_like(new[:, 0]), []
        for step in range(states.shape[1]):
            cell = share[:, step] * cell + (1 - share[:, step]) * new[:, step]
            found.append(cell.relu())
        return torch.stack(found, dim=1)

    def _attend(self, name: str, states: Tensor, memory: Tensor, lengths: Tensor) -> Tensor:
        def project(part: str, given: Tensor) -> Tensor:
            return self._affine(given, name, part).reshape(*given.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)

        query, key, value = project("q", states), project("k", memory), project("v", memory)
        scores = query @ key.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
        hidden = torch.arange(memory.shape[1]) >= lengths[:, None, None, None]
        heads = scores.masked_fill(hidden, -math.inf).softmax(-1) @ value
        return self._affine(heads.transpose(1, 2).flatten(2), name, "o")

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        return {name: value.detach().float().numpy() for name, value in self.weights.items()}


def train(student: Student, steps: int) -> Student:
    texts = make_texts(1, 200) + make_texts(2, 1800)
    sources, targets = [encode(text) for text in texts], [encode(translate_words(text)) for text in texts]
    for name, parameter in student.weights.items():
        if "_ln_scale" in name:
            nn.init.ones_(parameter)
        elif parameter.shape[0] == 1:
            nn.init.zeros_(parameter)
        else:
            nn.init.xavier_uniform_(parameter)
    nn.init.normal_(student.weights["Wemb"], std=WIDTH**-0.5)
    optimizer, random = torch.optim.Adam(student.parameters()), np.random.default_rng(4)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.005, total_steps=steps)
    for _ in range(steps):
        chosen = random.choice(len(texts), 32, replace=False)
        lengths = torch.tensor([len(sources[index]) for index in chosen])
        labels = fill([targets[index] for index in chosen], -100)
        logits = student(fill([sources[index] for index in chosen], EOS_ID), lengths, labels[:, :-1].clamp(min=0))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        rates.step()
    return student.eval()


def write_student(folder: Path, student: Student, suffix: str, *, separate: bool = False, **changed: object) -> Path:
    """Writes a model and its vocabulary into a new folder, as "npz", "bin" or "float bin"; options may be changed.

    With `separate`, source and target have embeddings and vocabularies of their own, with equal content.
    """
    folder.mkdir()
    tensors = student.tensors()
    if separate:
        tensors |= dict.fromkeys(("encoder_Wemb", "decoder_Wemb"), tensors.pop("Wemb"))
        changed = {"tied-embeddings-all": False, "tied-embeddings": True} | changed
    config = np.frombuffer(yaml.safe_dump(CONFIG | changed).encode() + b"\0", np.int8)
    stored: dict[str, Any] = {CONFIG_NAME: config, **tensors}
    if suffix == "npz":
        np.savez(folder / "model.npz", **stored)
    else:
        (folder / BIN_FILE).write_bytes(binary_file(stored, floats=suffix == "float bin"))
    for side in ("src", "trg") if separate else ("",):
        (folder / f"{side}{VOCABULARY_FILE}").write_bytes(student_pieces())
    return folder


def write_shortlist(path: Path) -> Path:
    """Writes the shortlist of a model: two frequent tokens, and two for each source token."""
    Shortlist.of(2, [(7 * token % PIECES, PIECES - 1 - token) for token in range(PIECES)]).write(path)
    return path


def write_random_student(folder: Path, form: Form, decoder_layers: int) -> int:
    """Writes a model of any size into a new folder; returns the size of its weights in bytes. It stops at once.

    The vocabulary has the pieces of the small models, and words that no text has.
    """
    folder.mkdir()
    tensors = dict(random_tensors(student_shapes(form, decoder_layers)))
    tensors["decoder_ff_logit_out_b"][0, EOS_ID] = 100.0
    sizes = {"dim-emb": form.width, "transformer-dim-ffn": form.inner, "transformer-heads": form.heads}
    sizes |= {"enc-depth": form.layers, "dec-depth": decoder_layers}
    config = np.frombuffer(yaml.safe_dump(CONFIG | sizes).encode() + b"\0", np.int8)
    (folder / BIN_FILE).write_bytes(binary_file({CONFIG_NAME: config, **tensors}))
    vocabulary = sentencepiece_model_pb2.ModelProto.FromString(student_pieces())  # type: ignore[attr-defined]
    for number in range(form.vocabulary - PIECES):
        vocabulary.pieces.add(piece=f"word{number}", score=-99.0)
    (folder / VOCABULARY_FILE).write_bytes(vocabulary.SerializeToString())
    return (folder / BIN_FILE).stat().st_size
