"""The picture shows every block and state of a decoder, and repeated layers once."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dragoman.export.inspect.figures import format_bytes, inspect
from dragoman.export.inspect.picture import draw_step
from dragoman.serve.bundle.bundle import Bundle


def texts_of(bundle: Bundle, folder: Path) -> list[str]:
    """Draws a bundle; returns the texts in drawing order."""
    draw_step(inspect(bundle, slots=1), folder / "step.svg")
    root = ET.fromstring((folder / "step.svg").read_text(encoding="utf-8"))  # noqa: S314 - a trusted file
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_layer_of_a_transformer_is_drawn_once_and_counted(int8_bundle: Bundle, tmp_path: Path) -> None:
    texts = texts_of(int8_bundle, tmp_path)
    blocks = ["embedding", "self-attention", "cross-attention", "feed-forward", "projection"]
    assert [text for text in texts if text in blocks] == blocks
    assert "3 times" in texts
    assert {"target_cache_0…2, target_scales_0…2", "source_cache_0…2, source_scales_0…2"} <= set(texts)


def test_arrows_show_the_bytes_that_a_layer_reads_and_writes(states_bundle: Bundle, tmp_path: Path) -> None:
    texts = texts_of(states_bundle, tmp_path)
    position_bytes = 2 * 4 * 64 * 4
    assert f"≤ {format_bytes(24 * position_bytes)}" in texts
    assert format_bytes(position_bytes) in texts
    assert f"≤ {format_bytes(40 * position_bytes)}" in texts


def test_shape_and_bytes_of_the_logits_are_shown(wide_bundle: Bundle, tmp_path: Path) -> None:
    size = wide_bundle.manifest.vocabulary_size
    assert f"logits float32 [R, {size}], {4 * size} B" in texts_of(wide_bundle, tmp_path)


def test_every_state_of_a_recurrent_decoder_is_drawn(recurrent_bundle: Bundle, tmp_path: Path) -> None:
    texts = texts_of(recurrent_bundle, tmp_path)
    assert {"annotations", "hidden_0", "hidden_1…2", "attentional"} <= set(texts)
    assert texts.count("recurrent update") == 3
    assert "2 times" in texts


@pytest.mark.parametrize("fixture", ["wide_bundle", "recurrent_bundle"])
def test_nothing_is_drawn_outside_the_picture(fixture: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    texts_of(request.getfixturevalue(fixture), tmp_path)
    svg = (tmp_path / "step.svg").read_text(encoding="utf-8")
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    places = [tuple(map(float, place)) for place in re.findall(r'<text [^>]*x="([\d.-]+)" y="([\d.-]+)"', svg)]
    assert places
    assert [(x, y) for x, y in places if not (0 < x < width and 0 < y < height)] == []


def test_the_same_bundle_gives_the_same_bytes(recurrent_bundle: Bundle, tmp_path: Path) -> None:
    inspection = inspect(recurrent_bundle, slots=1)
    for name in ("first.svg", "second.svg"):
        draw_step(inspection, tmp_path / name)
    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "second.svg").read_bytes()
