"""Bundles of format version 5 open, run on their own graphs and become ready."""

from pathlib import Path

import numpy as np
import pytest

from dragoman.export.graph_decoder import GraphDecoder
from dragoman.export.make_bundle import BundleOptions, write_bundle
from dragoman.export.origin import read_bundle
from dragoman.model.errors import RunError
from dragoman.serve.runtime.cpu import Sessions
from dragoman.serve.runtime.placement import open_sessions
from dragoman.serve.runtime.sessions import load_sessions
from tests.support.bundles import EarlierBundles
from tests.support.live import run_service

PRECISIONS = pytest.mark.parametrize("precision", ["fp32", "int8-static"])


@PRECISIONS
def test_a_server_reproduces_their_golden_sentences(earlier_bundles: EarlierBundles, precision: str) -> None:
    bundle = earlier_bundles(precision)
    assert (bundle.manifest.format_version, bundle.manifest.precision) == (5, precision)
    models = [load_sessions(bundle, threads=1).runtime(4)]
    with run_service(bundle.folder, models, slots=4) as live:
        answer = live.post({"text": [golden.source for golden in bundle.golden]})
    assert [each["text"] for each in answer.json()["translations"]] == [golden.target for golden in bundle.golden]


@PRECISIONS
def test_their_rows_are_bitwise_the_same_alone_and_in_a_batch(earlier_bundles: EarlierBundles, precision: str) -> None:
    bundle = earlier_bundles(precision)
    sessions = open_sessions(bundle, "cpu")
    assert isinstance(sessions, Sessions)
    random = np.random.default_rng(1)
    sources = [(*random.integers(4, 30, length).tolist(), bundle.manifest.eos_id) for length in range(1, 30)]
    together = GraphDecoder(sessions).translate(sources)
    assert len({answer.target_ids for answer in together}) > 3
    assert [GraphDecoder(sessions, 1).translate([source])[0] for source in sources] == together


def test_their_aligned_decoder_returns_attention(earlier_bundles: EarlierBundles) -> None:
    runtime = open_sessions(earlier_bundles("fp32"), "cpu", aligned=True).runtime(1)
    runtime.encode(np.array([[5, 6, 3]]), np.array([3], np.int32), [[0]])
    runtime.step(np.array([0]), np.array([2]), np.zeros(1, np.int32), np.array([3], np.int32), aligned=True)
    assert runtime.alignments[0, 0, :3].sum() == pytest.approx(1.0)


def test_their_weights_in_fp32_can_be_exported_again(earlier_bundles: EarlierBundles, tmp_path: Path) -> None:
    """In native graphs, with the same translations."""
    bundle = earlier_bundles("fp32")
    exportable, samples = read_bundle(bundle.folder)
    again = write_bundle(exportable, samples, tmp_path / "again", BundleOptions("again"))
    assert (again.manifest.format_version, again.manifest.states) == (6, ())
    assert {each.target_ids for each in again.golden} <= {each.target_ids for each in bundle.golden}


def test_other_precisions_cannot_be_exported_again(earlier_bundles: EarlierBundles) -> None:
    with pytest.raises(RunError, match="precision: int8-static: expected fp32"):
        read_bundle(earlier_bundles("int8-static").folder)
