"""`dragoman train --initial`: a trained model is trained further, from its run or from a bundle."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from dragoman import command_line
from dragoman.export.origin import read_trained
from dragoman.model.data.cleaning import CleanedCorpus, TrainingData
from dragoman.model.data.corpus import Corpus
from dragoman.model.run import RunFolder, TrainedModel
from dragoman.model.samples import read_samples
from dragoman.model.search import generate_greedy
from dragoman.model.tokenizer.tokenizer import UNK_ID
from dragoman.model.training.initial import spell
from dragoman.model.training.inputs import Inputs
from dragoman.serve.bundle.bundle import Bundle
from tests.support import toy
from tests.support.cases import cases
from tests.support.toy import TOY_CONFIG, TWO_WAYS, ToyBundles, fail_once, toy_sentences, translate_toy, write_pairs

CASES = cases(__file__)

DIRECTION = TOY_CONFIG.directions[0]
Train = Callable[..., TrainedModel]
# Steps so small that the parameters stay the same to some digits.
STILL = ("--training.max-steps=1", "--training.learning-rate=1e-9")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("recipe") / "toy.yaml"
    sections = TOY_CONFIG.model_dump(mode="json", include={"model", "tokenizer", "training"})
    path.write_text(yaml.safe_dump(sections), encoding="utf-8")
    return str(path)


@pytest.fixture(name="train")
def _train(recipe: str, tmp_path: Path) -> Train:
    """Trains on data into a folder of this name, with more options."""

    def train(data: str, name: str, *more: str) -> TrainedModel:
        out = tmp_path / name
        command_line.run("train", ["--data", data, "--recipe", recipe, "--out", str(out), *more])
        return RunFolder(out).load()

    return train


def assert_same_parameters(ours: TrainedModel, theirs: TrainedModel) -> None:
    left, right = ours.model.state_dict(), theirs.model.state_dict()
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(value, right[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["run", "fp32", "int8"])
def test_training_starts_with_parameters_and_tokenizer_of_a_run_or_bundle(
    toy_run: RunFolder, toy_bundles: ToyBundles, toy_data: str, train: Train, kind: str
) -> None:
    path, initial = {
        "run": lambda: (toy_run.path, toy_run.load()),
        "fp32": lambda: (toy_bundles("fp32"), read_trained(toy_bundles("fp32"))[0]),
        "int8": lambda: (toy_bundles("int8"), read_trained(toy_bundles("int8"))[0]),
    }[kind]()
    trained = train(toy_data, "run", "--initial", str(path), *STILL)
    assert_same_parameters(trained, initial)
    assert trained.tokenizer.model == initial.tokenizer.model
    assert trained.config.directions == (DIRECTION,)


def test_a_model_learns_new_translations(toy_run: RunFolder, train: Train, tmp_path: Path) -> None:
    """The data call the moon a bird."""

    def renamed(sentence: str) -> str:
        return translate_toy(sentence.replace("moon", "bird"))

    sentences = [toy_sentence for toy_sentence in toy_sentences() if "moon" in toy_sentence]
    learned, others = sentences[:300], sentences[-50:]
    data = write_pairs(tmp_path, "moon", learned, renamed)
    trained = train(data, "run", "--initial", str(toy_run.path), "--training.max-steps=150")

    def count_renamed(model: TrainedModel) -> int:
        answers = generate_greedy(model.model, model.source_ids(DIRECTION, others))
        translations = [model.tokenizer.decode(answer.target_ids) for answer in answers]
        return sum(ours == renamed(other) for ours, other in zip(translations, others, strict=True))

    assert count_renamed(toy_run.load()) == 0
    assert count_renamed(trained) >= 45


def test_a_new_token_starts_as_the_mean_of_those_that_spell_it(toy_run: RunFolder, toy_data: str, train: Train) -> None:
    options = ("--tokenizer.kind=bpe", "--tokenizer.vocabulary-size=60")
    initial, trained = toy_run.load(), train(toy_data, "run", "--initial", str(toy_run.path), *options, *STILL)
    pieces = trained.tokenizer.source_pieces
    known = {piece: token_id for token_id, piece in enumerate(initial.tokenizer.source_pieces)}
    rows = initial.model.state_dict()["embedding.weight"]
    ours = trained.model.state_dict()["embedding.weight"]
    spelled = [spell(piece, known) for piece in pieces]
    assert len(ours) == len(pieces) != len(rows)
    assert max(map(len, spelled)) > 1
    for piece, ids, row in zip(pieces, spelled, ours, strict=True):
        assert piece == "".join(initial.tokenizer.pieces(ids)) or ids == [UNK_ID]
        torch.testing.assert_close(row, rows[ids].mean(dim=0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["run", "bundle"])
def test_directions_without_data_keep_their_samples(
    two_way_run: RunFolder, two_way_bundle: Path, tmp_path: Path, kind: str
) -> None:
    """The data has en-de, the model also de-en."""
    recipe = yaml.safe_load(two_way_run.config.read_text(encoding="utf-8"))
    sections = {"model": recipe["model"], "tokenizer": recipe["tokenizer"]}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(sections), encoding="utf-8")
    run, initial = RunFolder(tmp_path / "run"), {"run": two_way_run.path, "bundle": two_way_bundle}[kind]
    words = dict.fromkeys(" ".join(toy.RANDOM_TEXTS).split())
    data = write_pairs(tmp_path, "words", list(words), lambda word: f"{word} {word}")
    options = ["--data", data, "--validation", data, "--recipe", str(tmp_path / "two.yaml"), *STILL]
    command_line.run("train", [*options, "--initial", str(initial), "--out", str(run.path)])
    samples = read_samples(run.samples, TWO_WAYS)
    earlier = {sample.text for sample in read_samples(two_way_run.samples, TWO_WAYS)}
    assert {sample.text for sample in samples if sample.direction == TWO_WAYS[1]} <= earlier
    command_line.run("export", [str(run.path), "--out", str(tmp_path / "bundle")])
    assert len(Bundle.open(tmp_path / "bundle").manifest.directions) == len(TWO_WAYS)


def test_a_piece_is_spelled_with_the_longest_pieces() -> None:
    known = {piece: token_id for token_id, piece in enumerate(["<pad>", "<unk>", "a", "ab", "b", "abc", "▁"])}
    assert spell("abcab", known) == [5, 3]
    assert spell("▁xb", known) == [6, 4]
    assert spell("x", known) == [UNK_ID]


def test_an_interrupted_run_goes_on_from_its_checkpoint_and_not_from_the_initial_model(
    toy_run: RunFolder, toy_data: str, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--initial", str(toy_run.path), "--training.max-steps=4", "--training.validation-every-steps=2")
    unbroken = train(toy_data, "unbroken", *options)
    with monkeypatch.context() as patch:
        fail_once(patch, "training_step", 4)
        with pytest.raises(RuntimeError):
            train(toy_data, "broken", *options)
    assert_same_parameters(train(toy_data, "broken", *options), unbroken)


def test_another_initial_model_than_at_the_start_is_refused(
    toy_run: RunFolder, toy_data: str, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before the first checkpoint, where the parameters would be random."""
    initial = ("--initial", str(toy_run.path))
    for name, first, second in (("with", initial, ()), ("without", (), initial)):
        with monkeypatch.context() as patch:
            fail_once(patch, "training_step", 1)
            with pytest.raises(RuntimeError):
                train(toy_data, name, *first, *STILL)
        message = rf"^dragoman train: initial: expected the same content as at the start of {tmp_path / name}, got"
        with pytest.raises(SystemExit, match=message):
            train(toy_data, name, *second, *STILL)


def test_other_pairs_than_at_the_start_are_refused(toy_data: str, train: Train, tmp_path: Path) -> None:
    """Also of a finished run; the same pairs in other files are accepted."""
    data = write_pairs(tmp_path, "train", toy_sentences()[:300])
    train(data, "run", *STILL)
    train(write_pairs(tmp_path, "copy", toy_sentences()[:300]), "run", *STILL)
    refused = rf"^dragoman train: {{}}: expected the same content as at the start of {tmp_path / 'run'}, got"
    with pytest.raises(SystemExit, match=refused.format("data, validation")):
        train(data, "run", "--validation", toy_data, *STILL)
    write_pairs(tmp_path, "train", toy_sentences()[:400])
    with pytest.raises(SystemExit, match=refused.format("data, validation")):
        train(data, "run", *STILL)


def test_links_are_part_of_the_data() -> None:
    corpora = (Corpus("en", "de", ["bird"], ["vogel"], links=links) for links in ([], [frozenset({(0, 0)})]))
    cleaned, linked = (Inputs.of(TrainingData([CleanedCorpus(corpus, {})], [])) for corpus in corpora)
    assert cleaned.differing(linked) == ["data"]


def test_pairs_of_the_base_domain_are_part_of_the_inputs() -> None:
    data = TrainingData([CleanedCorpus(Corpus("en", "de", ["bird"], ["vogel"]), {})], [])
    first, other = (Inputs.of(data, base=[Corpus("en", "de", ["dog"], [target])]) for target in ("hund", "hunde"))
    assert first.differing(other) == Inputs.of(data).differing(first) == ["base-validation"]


def test_a_damaged_record_of_inputs_is_named(toy_data: str, train: Train, tmp_path: Path) -> None:
    train(toy_data, "run", *STILL)
    inputs = RunFolder(tmp_path / "run").inputs
    inputs.write_text("data: [", encoding="utf-8")
    with pytest.raises(SystemExit, match=rf"^dragoman train: out: {re.escape(str(inputs))}: damaged, expected [^\n]*$"):
        train(toy_data, "run", *STILL)


def test_an_earlier_run_keeps_its_tokenizer(toy_run: RunFolder, toy_data: str, train: Train, tmp_path: Path) -> None:
    """It has no record of its inputs."""
    earlier = train(toy_data, "run", *STILL)
    RunFolder(tmp_path / "run").inputs.unlink()
    again = train(toy_data, "run", "--initial", str(toy_run.path), *STILL)
    assert again.tokenizer.model == earlier.tokenizer.model != toy_run.load().tokenizer.model
    assert_same_parameters(again, earlier)


@pytest.mark.parametrize(("options", "problem"), CASES["another shape and a missing model are refused"], ids=str)
def test_another_shape_and_a_missing_model_are_refused(
    toy_run: RunFolder, toy_data: str, train: Train, options: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit, match=f"^dragoman train: {re.escape(problem)}"):
        train(toy_data, "run", "--initial", str(toy_run.path), *options)


@pytest.mark.parametrize(("options", "problem"), CASES["a new model is refused what an initial one has"], ids=str)
def test_a_new_model_is_refused_what_an_initial_one_has(
    toy_data: str, train: Train, options: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit, match=f"^dragoman train: {re.escape(problem)}"):
        train(toy_data, "run", *options)


def test_a_direction_that_the_initial_model_lacks_is_refused(
    toy_run: RunFolder, toy_data: str, train: Train, tmp_path: Path
) -> None:
    write_pairs(tmp_path, "few", toy_sentences()[:20])
    data = f"files:{tmp_path / 'few.de'},{tmp_path / 'few.en'}"
    with pytest.raises(SystemExit, match=r"^dragoman train: data: expected directions .*, en-de, got de-en$"):
        train(data, "run", "--initial", str(toy_run.path))
    with pytest.raises(SystemExit, match=r"^dragoman train: base-validation: expected .*, en-de, got de-en$"):
        train(toy_data, "run", "--initial", str(toy_run.path), "--base-validation", data)
