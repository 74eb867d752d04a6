"""Optimum, in its own environment, translates as CTranslate2 does."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness.process import Assignment, Launch, SystemFailedError, SystemProcess
from benchmarks.systems.compared_model import ComparedModel, OptimumEnvironment, trained_model
from benchmarks.systems.ctranslate2_system import CTranslate2Translator
from benchmarks.systems.translating import Batching, SourceSentence, write_sentences
from model.run import RunFolder
from tests.support.optimum import PYTHON, needs_optimum
from tests.support.paths import ROOT
from tests.support.toy import toy_test_sentences

BATCHING = "8:examples"

# Its libraries are imported twice and a model is exported.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", name="toy_model")
def _toy_model(toy_run: RunFolder) -> ComparedModel:
    return trained_model(toy_run.path)


@pytest.fixture(scope="module", name="sentences")
def _sentences(toy_model: ComparedModel) -> list[SourceSentence]:
    exportable = toy_model.exportable
    prefix = exportable.directions[0].source_prefix
    longest = toy_model.model.config.max_target_tokens
    return [SourceSentence(exportable.source_ids(prefix, text), 0, longest) for text in toy_test_sentences()[:40]]


@pytest.fixture(scope="module", name="optimum")
def _optimum(toy_model: ComparedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemProcess]:
    folder = tmp_path_factory.mktemp("optimum")
    OptimumEnvironment(PYTHON).write_model(toy_model, folder / "model")
    options = {"folder": str(folder / "model"), "copies": 1, "threads": 1}
    load = "benchmarks.systems.optimum_system:load_optimum"
    with SystemProcess.run(Launch("optimum", load, options, str(PYTHON))) as system:
        yield system


@needs_optimum
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_trained_model_translates_alike_in_optimum(
    beam_size: int, optimum: SystemProcess, toy_model: ComparedModel, sentences: list[SourceSentence], tmp_path: Path
) -> None:
    output = tmp_path / "translations.json"
    write_sentences(tmp_path / "sentences.json", sentences)
    places = {"sentences": str(tmp_path / "sentences.json"), "output": str(output)}
    task = {**places, "beam_size": beam_size, "batching": BATCHING}
    turn = optimum.take_turn(Assignment(task, seconds=None))
    toy_model.write_ctranslate2(tmp_path / "ctranslate2", "float32")
    baseline = CTranslate2Translator(str(tmp_path / "ctranslate2"), 1, 1, "float32")
    expected = [list(target) for target in baseline.translate(sentences, beam_size, Batching.parse(BATCHING))]
    assert json.loads(output.read_bytes()) == expected
    assert turn.tokens == sum(map(len, expected)) > len(sentences)


@needs_optimum
def test_the_versions_of_its_libraries_are_reported() -> None:
    versions = OptimumEnvironment(PYTHON).versions()
    assert list(versions) == ["optimum-onnx", "transformers", "onnxruntime"]
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"optimum-onnx=={versions['optimum-onnx']}" in pinned
    assert f"onnxruntime=={versions['onnxruntime']}" in pinned


def test_a_missing_environment_is_reported_with_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(SystemFailedError) as failed:
        OptimumEnvironment(tmp_path / "python").versions()
    assert str(failed.value).startswith(f"optimum: {tmp_path / 'python'}: No such file or directory; expected ")
    assert "`make optimum`" in str(failed.value)


def test_an_environment_without_optimum_is_reported_with_the_missing_library() -> None:
    """Such as the environment of this test."""
    with pytest.raises(SystemFailedError, match=r"PackageNotFoundError: .*optimum-onnx; expected "):
        OptimumEnvironment(Path(sys.executable)).versions()
