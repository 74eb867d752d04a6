"""`dragoman calibrate` sets the limit of low confidence by the quality of translations."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import command_line
from dragoman.export.calibrate import lowest_confident
from dragoman.serve.bundle.bundle import MANIFEST_FILE, Bundle
from tests.support.commands import Capture, refusal
from tests.support.toy import toy_sentences, toy_test_sentences, write_pairs


def slow_limit(log_probabilities: list[float], good: list[bool], share: float) -> float:
    """The highest of the probabilities with at most a share of good translations below it."""
    fitting = [min(log_probabilities)]
    for limit in log_probabilities:
        below = [is_good for p, is_good in zip(log_probabilities, good, strict=True) if p < limit]
        if below and sum(below) <= share * len(below):
            fitting.append(limit)
    return max(fitting)


@given(
    st.lists(st.tuples(st.integers(-40, 0), st.booleans()), min_size=1, unique_by=lambda pair: pair[0]),
    st.integers(0, 3),
)
def test_the_limit_is_the_highest_with_few_good_translations_below(
    pairs: list[tuple[int, bool]], quarters: int
) -> None:
    log_probabilities, good = [float(p) for p, _ in pairs], [is_good for _, is_good in pairs]
    found = lowest_confident(np.array(log_probabilities), np.array(good), quarters / 4)
    assert found == slow_limit(log_probabilities, good, quarters / 4)


@pytest.fixture
def bundle(toy_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_bundle, tmp_path / "bundle"))


def test_the_flag_marks_translations_unlike_their_references(bundle: Path, tmp_path: Path, capsys: Capture) -> None:
    usual = write_pairs(tmp_path, "usual", toy_test_sentences()[:80])
    # Words in an order that the model has not learned, with references that no translation resembles.
    strange = [" ".join(reversed(text.split() * 3)) for text in toy_sentences()[:40]]
    (tmp_path / "strange.en").write_text("\n".join(strange) + "\n", encoding="utf-8")
    (tmp_path / "strange.de").write_text("?\n" * len(strange), encoding="utf-8")
    before = Bundle.open(bundle)
    data = ["--data", usual, "--data", f"files:{tmp_path / 'strange.en'},{tmp_path / 'strange.de'}"]
    command_line.run("calibrate", [str(bundle), *data])
    flagged, of, *_ = capsys.readouterr().out.split()
    assert of == "of"
    assert 20 <= int(flagged) <= 50
    after = Bundle.open(bundle)
    assert after.manifest.confidence != before.manifest.confidence
    assert after.manifest.model_copy(update={"confidence": before.manifest.confidence}) == before.manifest
    assert sorted(path.name for path in bundle.iterdir()) == sorted({*before.manifest.files, MANIFEST_FILE})


def test_too_few_pairs_are_refused(bundle: Path, tmp_path: Path) -> None:
    data = write_pairs(tmp_path, "few", toy_test_sentences()[:99])
    assert "expected at least 100 pairs, got 99" in refusal("calibrate", str(bundle), "--data", data)


def test_a_folder_without_a_bundle_is_refused(tmp_path: Path) -> None:
    assert "manifest.json" in refusal(
        "calibrate", str(tmp_path), "--data", write_pairs(tmp_path, "x", toy_sentences()[:5])
    )
