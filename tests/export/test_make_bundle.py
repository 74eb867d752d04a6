"""`dragoman export`: a bundle appears complete or not at all, and the runtime reproduces its golden sentences."""

import importlib.metadata
import math
from pathlib import Path
from shutil import copytree
from typing import Any, NoReturn

import numpy as np
import pytest

from dragoman import command_line
from dragoman.export import make_bundle as module
from dragoman.export.make_bundle import BundleOptions, Candidate, choose_golden, confidence_of, translated, write_bundle
from dragoman.export.source_model import Exportable
from dragoman.model.config import Direction
from dragoman.model.errors import CorpusError, RunError
from dragoman.model.run import RunFolder, TrainedModel
from dragoman.model.samples import Sample, read_samples
from dragoman.model.search import generate_greedy
from dragoman.model.tokenizer.tokenizer import EOS_ID, Tokenizer
from dragoman.serve.bundle.bundle import ENCODER_FILE, WEIGHTS_FILE, Bundle, BundleError, write_manifest
from dragoman.serve.bundle.manifest import BundleDirection, CacheSpec, GoldenSentence
from dragoman.serve.bundle.tokenizer import TOKENIZER_FILE
from tests.support import toy
from tests.support.cases import cases
from tests.support.commands import Capture, refusal
from tests.support.toy import TOY_CONFIG, random_model, samples_of, toy_test_sentences, translate_toy

CASES = cases(__file__)

EN_DE = BundleDirection(source="en", target="de")


def test_golden_sentences_hold_text_and_tokens(toy_run: RunFolder, toy_bundle: Path) -> None:
    tokenizer = toy_run.load().tokenizer
    golden = Bundle.open(toy_bundle).golden
    assert len(golden) >= 18
    for sentence in golden:
        assert sentence.source_ids == (*tokenizer.encode(sentence.source), EOS_ID)
        assert sentence.target == tokenizer.decode(sentence.target_ids)
    right = [sentence.target == translate_toy(sentence.source) for sentence in golden]
    assert sum(right) >= 0.9 * len(right)


def test_the_manifest_holds_the_provenance(toy_run: RunFolder, toy_bundle: Path) -> None:
    manifest = Bundle.open(toy_bundle).manifest
    assert (manifest.name, manifest.directions) == ("toy", (BundleDirection(source="en", target="de"),))
    assert manifest.cache == CacheSpec(layers=1, heads=4, head_size=16, element="float")
    assert manifest.states == ()
    assert (manifest.max_source_tokens, manifest.max_target_tokens) == (32, 24)
    assert manifest.provenance.training == TOY_CONFIG.model_dump(mode="json")
    assert manifest.provenance.steps == toy_run.load().steps
    assert manifest.provenance.versions["torch"] == importlib.metadata.version("torch")


def test_a_translation_with_a_near_tie_is_not_golden(toy_run: RunFolder) -> None:
    trained = Exportable.of_run(toy_run.load())
    sources = list(toy_test_sentences()[:50])
    translations = translated(trained, EN_DE, sources)
    candidates = [translation.candidate for translation in translations]
    answers = generate_greedy(trained.network, [[*trained.tokenizer.encode(source), EOS_ID] for source in sources])
    assert [candidate.gap for candidate in candidates] == [min(answer.gaps) for answer in answers]
    expected = [answer.score / len(answer.gaps) for answer in answers]
    assert [translation.log_probability for translation in translations] == expected
    smallest = sorted(candidate.gap for candidate in candidates)
    golden = choose_golden(candidates, smallest[20])
    clear = {answer.target_ids for answer in answers if min(answer.gaps) >= smallest[20]}
    assert {candidate.sentence.target_ids for candidate in golden} == clear
    assert len(golden) == 30


def test_of_few_clear_translations_the_clearest_are_golden() -> None:
    def candidates(target: str, *gaps: float) -> list[Candidate]:
        fields: dict[str, Any] = {"source_ids": (4,), "target_ids": (), "source": "", "target": ""}
        sentence = GoldenSentence(source_language="en", target_language=target, **fields)
        return [Candidate(sentence, gap) for gap in gaps]

    unclear = candidates("de", 0.3, 0.1, 0.5, 0.2, 0.4, 0.0)
    chosen = choose_golden([*unclear, *candidates("fr", *[2.0] * module.MIN_GOLDEN, 0.9)], 1.0)
    assert [item.gap for item in chosen if item.sentence.languages == ("en", "de")] == [0.3, 0.5, 0.2, 0.4]
    assert [item.gap for item in chosen if item.sentence.languages == ("en", "fr")] == [2.0] * module.MIN_GOLDEN


def test_few_clear_translations_are_reported(
    toy_run: RunFolder, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.MIN_GOLDEN_GAP, "fp32", 1e9)
    command_line.run("export", [str(toy_run.path), "--out", str(tmp_path / "toy")])
    assert len(Bundle.open(tmp_path / "toy").golden) == module.MIN_GOLDEN
    assert "dragoman export: warning: " in capsys.readouterr().err


def test_a_source_that_is_too_long_is_not_golden(toy_run: RunFolder) -> None:
    translations = translated(Exportable.of_run(toy_run.load()), EN_DE, ["bird", "bird " * 31, "bird " * 32])
    assert [len(translation.candidate.sentence.source_ids) for translation in translations] == [2, 32]


def test_a_bundle_states_how_probable_its_translations_are(toy_run: RunFolder, tmp_path: Path) -> None:
    trained, texts = Exportable.of_run(toy_run.load()), list(toy_test_sentences()[:50])
    bundle = write_bundle(trained, samples_of(texts), tmp_path / "b", BundleOptions("toy"))
    found = np.array([item.log_probability for item in translated(trained, EN_DE, texts)])
    confidence = bundle.manifest.confidence
    assert confidence is not None
    assert confidence.mean == pytest.approx(found.mean())
    assert confidence.deviation == pytest.approx(found.std(ddof=1))
    assert confidence_of([-0.5]) is None


@pytest.mark.parametrize("damaged", [math.nan, -math.inf])
@pytest.mark.parametrize("others", [[], [-0.5]])
def test_a_log_probability_that_is_not_finite_makes_no_bundle(others: list[float], damaged: float) -> None:
    with pytest.raises(RunError, match="weights are damaged"):
        confidence_of([damaged, *others])


@pytest.mark.parametrize(("sources", "problem"), [([], "no text, expected one in "), (["bird " * 40], "none of 1 ")])
def test_a_bundle_without_golden_sentences_is_not_made(toy_run: RunFolder, sources: list[str], problem: str) -> None:
    with pytest.raises(RunError, match=f"^golden sentences: en-de: {problem}"):
        translated(Exportable.of_run(toy_run.load()), EN_DE, sources)


@pytest.mark.parametrize("failing", ["export_model", "translated", "write_manifest"])
def test_an_export_that_fails_leaves_nothing_behind(
    toy_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def export_some(*given: Any, **_: Any) -> None:
        folder: Path = given[-1]
        (folder / "encoder.onnx").write_bytes(b"half")

    def fail(*_: Any, **__: Any) -> NoReturn:
        raise OSError("no space left on device")

    monkeypatch.setattr(module, "export_model", export_some)
    monkeypatch.setattr(module, "_manifest", lambda *_: None)
    monkeypatch.setattr(module, failing, fail)
    with pytest.raises(OSError, match="no space left"):
        write_bundle(Exportable.of_run(toy_run.load()), samples_of(["bird moon"]), tmp_path / "b", BundleOptions("toy"))
    assert not any(tmp_path.iterdir())


def test_samples_are_read_with_their_direction(tmp_path: Path) -> None:
    path = tmp_path / "samples.tsv"
    path.write_text("en\tde\tbird moon\nde\ten\tvogel\tmond\n", encoding="utf-8")
    there, back = Direction(source="en", target="de"), Direction(source="de", target="en")
    assert read_samples(path, (there, back)) == [Sample(there, "bird moon"), Sample(back, "vogel\tmond")]


@pytest.mark.parametrize("line", ["bird moon", "en\tde", "en\tde\t", "fr\tde\tbird", "", "\t\tbird"])
def test_a_line_that_is_no_sample_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "samples.tsv"
    path.write_text(f"en\tde\tbird\n{line}\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"samples\.tsv: line 2: expected the languages of en-de and a text"):
        read_samples(path, TOY_CONFIG.directions)


def test_each_direction_has_its_prefix_and_golden_sentences(two_way_bundle: Path, two_way_tokenizer: Tokenizer) -> None:
    bundle = Bundle.open(two_way_bundle)
    prefixes = {str(direction): direction.source_prefix for direction in bundle.manifest.directions}
    assert prefixes == {
        "en-de": (two_way_tokenizer.language_token("de"),),
        "de-en": (two_way_tokenizer.language_token("en"),),
    }
    assert {f"{sentence.source_language}-{sentence.target_language}" for sentence in bundle.golden} == set(prefixes)
    for sentence in bundle.golden:
        prefix = prefixes[f"{sentence.source_language}-{sentence.target_language}"]
        assert sentence.source_ids == (*prefix, *two_way_tokenizer.encode(sentence.source), EOS_ID)


@pytest.mark.parametrize("option", ["--source-language=en", "--target-language=deu"])
def test_a_direction_can_be_exported(two_way_run: RunFolder, two_way_bundle: Path, tmp_path: Path, option: str) -> None:
    command_line.run("export", [str(two_way_run.path), "--out", str(tmp_path / "one"), option])
    one, both = Bundle.open(tmp_path / "one"), Bundle.open(two_way_bundle)
    assert one.manifest.directions == tuple(item for item in both.manifest.directions if str(item) == "en-de")
    assert one.golden == tuple(sentence for sentence in both.golden if sentence.target_language == "de")


def test_languages_that_a_run_does_not_translate_are_refused(two_way_run: RunFolder, tmp_path: Path) -> None:
    message = refusal("export", str(two_way_run.path), "--out", str(tmp_path / "one"), "--target-language=fr")
    problem = "None, fr: expected languages of a direction of the model: en-de, de-en"
    assert message == f"dragoman export: run: source-language, target-language: {problem}"


def test_a_direction_without_golden_sentences_makes_no_bundle(two_way_tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = TOY_CONFIG.model_copy(update={"directions": toy.TWO_WAYS})
    trained = TrainedModel(config, two_way_tokenizer, random_model(3, two_way_tokenizer.vocabulary_size), steps=0)
    with pytest.raises(RunError, match=r"^golden sentences: de-en: no text, expected one in samples\.tsv "):
        write_bundle(Exportable.of_run(trained), samples_of(["house", "two"]), tmp_path / "two", BundleOptions("two"))
    assert not any(tmp_path.iterdir())


def test_a_run_with_samples_of_another_direction_is_refused(two_way_run: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(copytree(two_way_run.path, tmp_path / "run"))
    run.samples.write_text("fr\tde\talpha\n", encoding="utf-8")
    message = refusal("export", str(run.path), "--out", str(tmp_path / "bundle"))
    expected = f"{run.samples}: line 1: expected the languages of en-de or de-en and a text"
    assert message.startswith(f"dragoman export: run: {expected}")


@pytest.mark.parametrize(("options", "problem"), CASES["what cannot be exported is refused by name"], ids=str)
def test_what_cannot_be_exported_is_refused_by_name(
    toy_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [str(toy_run.path) if option == "RUN" else option for option in options]
    assert refusal("export", *arguments).startswith(f"dragoman export: {problem}")
    assert list(tmp_path.iterdir()) == []


def test_an_export_into_a_file_is_refused_in_one_line(toy_run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = refusal("export", str(toy_run.path), "--out", str(tmp_path / "file" / "toy"))
    assert message.startswith(f"dragoman export: {tmp_path / 'file'}")


def test_the_command_makes_the_same_bundle_again(
    toy_run: RunFolder, toy_bundle: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, without ONNX Runtime; only the decoder has the heads of alignments."""
    version = importlib.metadata.version

    def version_without_runtime(library: str) -> str:
        if library == "onnxruntime":
            raise importlib.metadata.PackageNotFoundError(library)
        return version(library)

    monkeypatch.setattr(importlib.metadata, "version", version_without_runtime)
    out = tmp_path / "new" / "small"
    command_line.run("export", [str(toy_run.path), "--out", str(out), "--align", "0:1"])
    bundle = Bundle.open(out)
    assert bundle.manifest.name == "small"
    assert [str(head) for head in bundle.manifest.alignment_heads] == ["0:1"]
    for file in (ENCODER_FILE, WEIGHTS_FILE, TOKENIZER_FILE):
        assert (out / file).read_bytes() == (toy_bundle / file).read_bytes()
    assert "onnxruntime" not in bundle.manifest.provenance.versions
    assert capsys.readouterr().out.endswith(f" MB, {len(bundle.golden)} golden sentences\n")
    assert list(out.parent.iterdir()) == [out]
    assert out.stat().st_mode & 0o777 == 0o755


@pytest.mark.usefixtures("restored_logs")
def test_the_quality_of_8_bits_is_compared_with_the_run(toy_run: RunFolder, tmp_path: Path, capsys: Capture) -> None:
    texts = toy_test_sentences()[:40]
    sides = (tmp_path / "test.en", tmp_path / "test.de")
    for side, lines in zip(sides, (texts, [translate_toy(text) for text in texts]), strict=True):
        side.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options = ["--precision", "int8", "--quality", f"files:{sides[0]},{sides[1]}"]
    command_line.run("export", [str(toy_run.path), "--out", str(tmp_path / "int8"), *options])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(row[1], row[2]) for row in rows if row and row[0] == "en-de"] == [("system", "40"), ("baseline", "40")]
    manifest = Bundle.open(tmp_path / "int8").manifest
    assert (manifest.variant, manifest.precision) == ("cpu", "int8")


@pytest.mark.parametrize("head", ["0", "0:x", "-1:0", ""])
def test_an_invalid_head_is_refused(toy_run: RunFolder, tmp_path: Path, head: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.run("export", [str(toy_run.path), "--out", str(tmp_path / "toy"), f"--align={head}"])
    assert ended.value.code == 2
    assert "dragoman export: --align" in capsys.readouterr().err


def test_a_bundle_with_alignment_heads_needs_the_decoder_for_them(states_bundle: Bundle, tmp_path: Path) -> None:
    bundle = Bundle.open(copytree(states_bundle.folder, tmp_path / "states"))
    assert bundle.manifest.alignment_heads
    bundle.aligned_decoder_path.unlink()
    with pytest.raises(BundleError, match=r"aligned_decoder\.onnx: "):
        Bundle.open(bundle.folder)
    files = {name: value for name, value in bundle.manifest.files.items() if name != bundle.aligned_decoder_path.name}
    write_manifest(bundle.folder, bundle.manifest.model_copy(update={"files": files}))
    with pytest.raises(BundleError, match=r"files: aligned_decoder\.onnx is not listed"):
        Bundle.open(bundle.folder)
