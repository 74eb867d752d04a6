"""A tiny model with a state of every kind, as graphs that PyTorch also runs: everything a bundle may hold.

It keeps the source (a source state), all tokens (a target state) and a recurrent vector; each affects the logits. The
logits read the old recurrent vector after the new one is written.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from dragoman.export.graphs.graphs import Graphs
from dragoman.export.graphs.to_onnx import OPSET, export_graphs
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import BundleDirection, Manifest, Provenance, StateSpec
from dragoman.serve.bundle.tokenizer_spec import SentencePieceSpec

WIDTH = 8
VOCABULARY = 20
MAX_SOURCE_TOKENS = 9
MAX_TARGET_TOKENS = 7

STATES = (
    StateSpec(name="hidden", shape=(WIDTH,)),
    StateSpec(name="annotations", shape=("source", WIDTH)),
    StateSpec(name="history", shape=(2, "target", WIDTH)),
)


class RecallEncoder(nn.Module):
    """Maps source tokens to annotations and a first hidden state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        """Returns hidden [B, WIDTH] and annotations [B, S, WIDTH]."""
        annotations = self.embedding(source_ids)
        valid = torch.arange(source_ids.shape[1]) < source_lengths[:, None]  # [B, S]
        hidden = torch.tanh((annotations * valid[:, :, None]).sum(dim=1))
        return [hidden, annotations]


class RecallDecoder(nn.Module):
    """One step; without positions, the history holds only the newest token."""

    def __init__(self, *, uses_positions: bool) -> None:
        super().__init__()
        self.uses_positions = uses_positions
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.recurrence = nn.Linear(2 * WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, VOCABULARY)

    def forward(
        self, token_ids: Tensor, positions: Tensor, source_lengths: Tensor, states: list[Tensor]
    ) -> list[Tensor]:
        """Returns logits [R, VOCABULARY], hidden and history."""
        past_hidden, annotations, past_history = states
        token = self.embedding(token_ids)  # [R, WIDTH]
        hidden = torch.tanh(self.recurrence(torch.cat((token, past_hidden), dim=1)))
        attended = attend(hidden, annotations, source_lengths)
        places = positions if self.uses_positions else torch.zeros_like(token_ids, dtype=torch.int32)
        length = past_history.shape[2]
        newest = (torch.arange(length) == places[:, None])[:, None, :, None]  # [R, 1, C, 1]
        history = torch.where(newest, token[:, None, None], past_history)
        remembered = attend(hidden, history[:, 1], places + 1)
        return [self.output(attended + remembered + 3 * hidden * past_hidden), hidden, history]


def attend(query: Tensor, memory: Tensor, lengths: Tensor) -> Tensor:
    """Attends from [R, WIDTH] to the first positions of [R, C, WIDTH]; later positions may be any finite value."""
    scores = (memory * query[:, None]).sum(dim=2)
    valid = torch.arange(memory.shape[1]) < lengths[:, None]
    weights = functional.softmax(scores.masked_fill(~valid, -1e9), dim=1)
    return (weights[:, :, None] * memory).sum(dim=1)


def recall_graphs(*, uses_positions: bool = True) -> Graphs:
    """Returns the model, always with the same parameters."""
    torch.manual_seed(5)
    return Graphs(RecallEncoder().eval(), RecallDecoder(uses_positions=uses_positions).eval(), STATES)


def recall_bundle(graphs: Graphs, folder: Path) -> Bundle:
    """Exports the model into an empty folder, with a manifest but without other files of a bundle."""
    exported = export_graphs(graphs, folder)
    manifest = Manifest(
        name="recall",
        vocabulary_size=VOCABULARY,
        directions=(BundleDirection(source="en", target="de"),),
        source_suffix=(EOS_ID,),
        tokenizer=SentencePieceSpec(model="tokenizer.model"),
        states=exported.states,
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        max_source_tokens=MAX_SOURCE_TOKENS,
        max_target_tokens=MAX_TARGET_TOKENS,
        precision="fp32",
        opset=OPSET,
        encoder=exported.encoder,
        decoder=exported.decoder,
        files={},
        provenance=Provenance(created="2026-01-01", versions={}, training={}, steps=1, scores={}),
    )
    return Bundle(folder, manifest, ())


@torch.inference_mode()
def recall_alone(graphs: Graphs, source_ids: list[int], target_ids: list[int]) -> Tensor:
    """Returns the logits of each step [T, VOCABULARY] of one sequence alone, from PyTorch."""
    length = torch.tensor([len(source_ids)], dtype=torch.int32)
    hidden, annotations = graphs.encoder(torch.tensor([source_ids]), length)
    history = torch.zeros(1, 2, len(target_ids), WIDTH)
    rows = []
    for position, token_id in enumerate(target_ids):
        position_row = torch.tensor([position], dtype=torch.int32)
        logits, hidden, history = graphs.decoder(
            torch.tensor([token_id]), position_row, length, [hidden, annotations, history]
        )
        rows.append(logits[0])
    return torch.stack(rows)
