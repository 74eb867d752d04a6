"""Attention maps of a given translation, by words.

The translation is forced on every model, so that the rows of their maps correspond. A word attends with the mean of its
pieces, and is attended to with their sum. Rows therefore still sum to 1, and models with other tokenizers have the same
axes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from numpy.typing import NDArray

from dragoman.export.source_model import Exportable, find_direction
from dragoman.model.config import Direction, TransformerConfig
from dragoman.model.data.corpus import CorpusError
from dragoman.model.provenance import drawing
from dragoman.model.tokenizer.tokenizer import BOS_ID, WORD_START, Tokenizer

COLUMNS = 2
# Inches of a cell, and around the cells of a figure.
CELL, SMALL_CELL, MARGIN = 0.26, 0.16, 1.5


@dataclass(frozen=True, slots=True)
class AttentionMaps:
    """The attention of one model over one source of S words to T target words, both with EOS.

    `source` also has the token of a target language if the model has one; row t of a map predicts target word t.
    `layers` has the weights per head of every decoder layer with attention, float32 [layers, heads, T, S].
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    layers: NDArray[np.float32]

    @property
    def summary(self) -> NDArray[np.float32]:
        """The mean over the heads of the last layer, [T, S]."""
        return np.asarray(self.layers[-1].mean(axis=0))


@torch.inference_mode()
def force_maps(origin: Exportable, direction: Direction, source: str, target: str) -> AttentionMaps:
    """Returns the attention of forced decoding; raises CorpusError for another direction or a side that is too long."""
    tokenizer = origin.tokenizer
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(f"{tokenizer}: expected the tokenizer of a training run")
    source_ids, target_ids = source_ids_of(origin, direction, source), tokenizer.encode(target)
    limits = origin.model.limits
    for side, ids, limit in (
        ("source", source_ids, limits.max_source_tokens),
        ("target", target_ids, limits.max_target_tokens),
    ):
        if len(ids) > limit:
            raise CorpusError(f"{source}: {len(ids)} {side} tokens, expected at most {limit}")
    (maps,) = origin.network.attention_maps(torch.tensor([source_ids]), torch.tensor([[BOS_ID, *target_ids]]))
    heads = limits.heads if isinstance(limits, TransformerConfig) else 1
    layers = maps.unflatten(0, (-1, heads)).float().numpy()  # [layers, heads, target pieces, source pieces]
    columns, sources = zip(*split_words(tokenizer.pieces(source_ids)), strict=True)
    rows, targets = zip(*split_words(tokenizer.pieces([*target_ids, origin.model.eos_id])), strict=True)
    counts = np.diff([*rows, layers.shape[2]])
    layers = np.add.reduceat(np.add.reduceat(layers, columns, axis=3), rows, axis=2) / counts[:, None]
    return AttentionMaps(sources, targets, layers.astype(np.float32))


def source_ids_of(origin: Exportable, direction: Direction, text: str) -> tuple[int, ...]:
    """Returns the encoder input of a text; a `CorpusError` if the model does not translate in this direction."""
    return origin.source_ids(find_direction(origin, (direction.source, direction.target)).source_prefix, text)


def split_words(pieces: Sequence[str]) -> list[tuple[int, str]]:
    """Returns the words of a text, each with the index of its first piece; a final punctuation mark is a word."""
    words: list[tuple[int, str]] = []
    for index, piece in enumerate(pieces):
        following = pieces[index + 1] if index + 1 < len(pieces) else WORD_START
        ends = following.startswith((WORD_START, "<"))
        if not words or piece.startswith((WORD_START, "<")) or (ends and not any(map(str.isalnum, piece))):
            words.append((index, piece.removeprefix(WORD_START)))
        else:
            start, word = words[-1]
            words[-1] = start, word + piece
    return words


def draw_summaries(maps: Mapping[str, AttentionMaps], path: Path) -> None:
    """Draws one map per model with the same axes and colors; the keys are the titles."""
    columns = min(COLUMNS, len(maps))
    rows = ceil(len(maps) / columns)
    width = MARGIN + CELL * max(len(shown.source) for shown in maps.values())
    height = MARGIN + CELL * max(len(shown.target) for shown in maps.values())
    with drawing(path, (columns * width + MARGIN / 2, rows * height)) as figure:
        panels = figure.subplots(rows, columns, squeeze=False)
        for panel, (title, shown) in zip(panels.flat, maps.items(), strict=False):
            mesh = _draw(panel, shown.summary, shown.source, shown.target, title)
        for panel in panels.flat[len(maps) :]:
            panel.set_axis_off()
        figure.colorbar(mesh, ax=panels, label="attention", shrink=0.6)


def draw_heads(maps: AttentionMaps, path: Path) -> None:
    """Draws every head of a model: a row per decoder layer, a column per head."""
    layers, heads, rows, columns = maps.layers.shape
    inches = (2 * MARGIN + heads * columns * SMALL_CELL, MARGIN + layers * rows * SMALL_CELL)
    with drawing(path, inches) as figure:
        panels = figure.subplots(layers, heads, squeeze=False)
        for (layer, head), panel in np.ndenumerate(panels):
            source, target = maps.source if layer == 0 else (), maps.target if head == 0 else ()
            mesh = _draw(panel, maps.layers[layer, head], source, target, f"layer {layer + 1}, head {head + 1}")
        figure.colorbar(mesh, ax=panels, label="attention", shrink=0.6)


def _draw(
    panel: Axes, weights: NDArray[np.float32], source: Sequence[str], target: Sequence[str], title: str
) -> QuadMesh:
    panel.set_title(title, parse_math=False)
    panel.set_aspect("equal")
    panel.invert_yaxis()
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0, labelsize=8, top=True, labeltop=True, bottom=False, labelbottom=False)
    for axis, words in ((panel.xaxis, source), (panel.yaxis, target)):
        # A dollar sign is a token, not the start of a formula.
        axis.set_ticks(np.arange(len(words)) + 0.5, words, parse_math=False)
    panel.tick_params(axis="x", rotation=90)
    # Vector cells with edges stay crisp at any size.
    return panel.pcolormesh(weights, cmap="Blues", vmin=0, vmax=1, edgecolors="lightgray", linewidth=0.3)
