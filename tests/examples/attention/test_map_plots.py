"""Pictures of attention show every map with its title and tokens."""

from pathlib import Path

import numpy as np

from examples.attention.runs import AttentionMaps, draw_heads, draw_summaries

LAYERS, HEADS = 2, 3
SOURCE, TARGET = ("▁a", "▁cost", "▁$", "5", "$", "</s>"), ("▁ein", "▁Preis", "</s>")


def random_maps(layers: int, heads: int) -> AttentionMaps:
    weights = np.random.default_rng(1).dirichlet(np.ones(len(SOURCE)), size=(layers, heads, len(TARGET)))
    return AttentionMaps(SOURCE, TARGET, weights.astype(np.float32))


def texts(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_every_model_has_a_map_with_its_name(tmp_path: Path) -> None:
    names = ["additive", "transformer", "dot"]
    draw_summaries({name: random_maps(1, 1) for name in names}, tmp_path / "maps.svg")
    drawn = texts(tmp_path / "maps.svg")
    assert [name for name in names if f">{name}<" not in drawn] == []
    assert drawn.count("<image") == len(names)


def test_tokens_are_written_as_they_are(tmp_path: Path) -> None:
    """Between two dollar signs matplotlib would see a formula."""
    draw_summaries({"run": random_maps(1, 1)}, tmp_path / "maps.svg")
    drawn = texts(tmp_path / "maps.svg").replace("&lt;", "<").replace("&gt;", ">")
    assert [token for token in (*SOURCE, *TARGET) if f">{token}</text" not in drawn] == []


def test_every_head_of_every_layer_is_drawn(tmp_path: Path) -> None:
    draw_heads(random_maps(LAYERS, HEADS), tmp_path / "heads.svg")
    drawn = texts(tmp_path / "heads.svg")
    assert drawn.count("<image") == LAYERS * HEADS
    labels = ["head 1", "head 2", "head 3", "layer 1", "layer 2"]
    assert [label for label in labels if f">{label}<" not in drawn] == []


def test_the_same_maps_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        draw_heads(random_maps(LAYERS, HEADS), tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
