"""A tiny model with a source state and a recurrent one, as graphs that PyTorch also runs.

It keeps the source and a vector; each affects the logits, and so does the position. The logits read the old vector
after the new one is written.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from dragoman.export.graphs.graphs import Graphs
from dragoman.export.graphs.to_onnx import export_graphs
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import StateSpec
from tests.support.fakes import fake_manifest

WIDTH = 8
VOCABULARY = 20
MAX_SOURCE_TOKENS = 9
MAX_TARGET_TOKENS = 7

STATES = (StateSpec(name="hidden", shape=(WIDTH,)), StateSpec(name="annotations", shape=("source", WIDTH)))


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
    """One step, with an input of positions that it may ignore."""

    def __init__(self, *, uses_positions: bool) -> None:
        super().__init__()
        self.uses_positions = uses_positions
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.recurrence = nn.Linear(2 * WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, VOCABULARY)

    def forward(
        self, token_ids: Tensor, positions: Tensor, source_lengths: Tensor, states: list[Tensor]
    ) -> list[Tensor]:
        """Returns logits [R, VOCABULARY] and hidden."""
        past_hidden, annotations = states
        token = self.embedding(token_ids)  # [R, WIDTH]
        hidden = torch.tanh(self.recurrence(torch.cat((token, past_hidden), dim=1)))
        attended = attend(hidden, annotations, source_lengths)
        if self.uses_positions:
            attended = attended + torch.sin(positions[:, None].float())
        return [self.output(attended + 3 * hidden * past_hidden), hidden]


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
    manifest = fake_manifest(MAX_TARGET_TOKENS, vocabulary_size=VOCABULARY, max_source_tokens=MAX_SOURCE_TOKENS)
    own = {"states": exported.states, "encoder": exported.encoder, "decoder": exported.decoder}
    return Bundle(folder, manifest.model_copy(update=own), ())


@torch.inference_mode()
def recall_alone(graphs: Graphs, source_ids: list[int], target_ids: list[int]) -> Tensor:
    """Returns the logits of each step [T, VOCABULARY] of one sequence alone, from PyTorch."""
    length = torch.tensor([len(source_ids)], dtype=torch.int32)
    hidden, annotations = graphs.encoder(torch.tensor([source_ids]), length)
    rows = []
    for position, token_id in enumerate(target_ids):
        position_row = torch.tensor([position], dtype=torch.int32)
        logits, hidden = graphs.decoder(torch.tensor([token_id]), position_row, length, [hidden, annotations])
        rows.append(logits[0])
    return torch.stack(rows)
