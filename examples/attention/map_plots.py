"""Pictures of attention: target tokens downwards, source tokens to the right, the darker the more attended to.

`dragoman attention` writes them. Knows maps, not models.
"""

from collections.abc import Mapping
from math import ceil
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from examples.attention.attention_maps import AttentionMaps
from model.drawing import drawing

COLUMNS = 2
INCHES_PER_TOKEN = 0.19
NARROW_INCHES_PER_TOKEN = 0.14
MARGIN_INCHES = 1.3


def draw_summaries(maps: Mapping[str, AttentionMaps], path: Path) -> None:
    """Draws one map of each of some models, side by side; the keys become titles."""
    width = MARGIN_INCHES + INCHES_PER_TOKEN * max(len(shown.source_pieces) for shown in maps.values())
    height = MARGIN_INCHES + INCHES_PER_TOKEN * max(len(shown.target_pieces) for shown in maps.values())
    columns = min(COLUMNS, len(maps))
    rows = ceil(len(maps) / columns)
    with drawing(path, (columns * width, rows * height)) as figure:
        panels = figure.subplots(rows, columns, squeeze=False).flat
        for panel, (title, shown) in zip(panels, maps.items(), strict=False):
            _draw(panel, shown.summary)
            _label_source(panel, shown)
            _label_target(panel, shown)
            panel.set_title(title, parse_math=False)
        for panel in list(panels)[len(maps) :]:
            panel.set_axis_off()


def draw_heads(maps: AttentionMaps, path: Path) -> None:
    """Draws every head of a model: a row for each decoder layer, a column for each head."""
    layers, heads, rows, columns = maps.layers.shape
    width = MARGIN_INCHES + heads * columns * NARROW_INCHES_PER_TOKEN
    height = MARGIN_INCHES + layers * rows * NARROW_INCHES_PER_TOKEN
    with drawing(path, (width, height)) as figure:
        panels = figure.subplots(layers, heads, squeeze=False)
        for (layer, head), panel in np.ndenumerate(panels):
            _draw(panel, maps.layers[layer, head])
            if layer == 0:
                panel.set_title(f"head {head + 1}")
            if layer == layers - 1:
                _label_source(panel, maps)
            if head == 0:
                _label_target(panel, maps)
                panel.set_ylabel(f"layer {layer + 1}")


def _draw(panel: Axes, weights: np.ndarray) -> None:
    panel.imshow(weights, cmap="Blues", vmin=0, vmax=1, interpolation="none")
    panel.tick_params(length=0, labelsize=7)
    panel.set_xticks([])
    panel.set_yticks([])


def _label_source(panel: Axes, maps: AttentionMaps) -> None:
    # A dollar sign is a token like any other, not the beginning of a formula.
    panel.set_xticks(range(len(maps.source_pieces)), maps.source_pieces, rotation=90, parse_math=False)


def _label_target(panel: Axes, maps: AttentionMaps) -> None:
    panel.set_yticks(range(len(maps.target_pieces)), maps.target_pieces, parse_math=False)
