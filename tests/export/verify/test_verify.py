"""`dragoman verify`: a correct bundle passes every check, and every fault fails its check."""

import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import onnx
import pytest
from onnx import TensorProto, helper

from dragoman import command_line
from dragoman.model.run import RunFolder
from dragoman.model.tokenizer.tokenizer import EOS_ID
from dragoman.serve.bundle.bundle import DECODER_FILE, Bundle
from tests.support.bundles import change_manifest, reseal
from tests.support.commands import Capture, refusal
from tests.support.paths import ROOT
from tests.support.promises import Measured
from tests.support.toy import RANDOM_TEXTS, ToyBundles, spoil_bundle, toy_test_sentences, write_pairs

FEW = ["--sentences", "60", "--invariance-sentences", "20", "--batches", "2,16"]
CHECKS = ["logits", "tokens, greedy", "tokens, beam 4", "engine, greedy", "golden sentences"]
CHECKS += ["invariance, greedy", "invariance, beam 4"]
LINE = re.compile(r"(pass|FAIL|skip)  (.{24}) (.*)")


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_pairs(tmp_path, "test", toy_test_sentences())


@pytest.fixture
def arguments(toy_run: RunFolder, data: str) -> list[str]:
    return ["--run", str(toy_run.path), "--data", data, *FEW]


@pytest.fixture(scope="module", params=["fp32", "int8"])
def bundle_of_any_kind(request: pytest.FixtureRequest, toy_bundles: ToyBundles) -> Path:
    """The toy model in every precision for CPUs."""
    return toy_bundles(request.param)


@pytest.fixture(scope="module", params=[("fp32", 1.001), ("int8", 1.2)], ids=["fp32", "int8"])
def noisy(request: pytest.FixtureRequest, toy_bundles: ToyBundles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy model whose logits are slightly wrong."""
    precision, factor = request.param
    out = tmp_path_factory.mktemp("bundle") / "noisy"
    return change_output(toy_bundles(precision), out, "logits", factor, [("Mul", ["exact", "number"])])


def change_output(bundle: Path, out: Path, changed: str, number: float, nodes: list[tuple[str, list[str]]]) -> Path:
    """Copies a bundle and appends operators that compute an output of its decoder from the `exact` one and a number.

    The output of each operator is named after it in small letters; that of the last one is the changed output.
    """
    copytree(bundle, out)
    model = onnx.load(out / DECODER_FILE, load_external_data=False)
    for node in model.graph.node:
        node.output[:] = ["exact" if name == changed else name for name in node.output]
    model.graph.initializer.append(helper.make_tensor("number", TensorProto.FLOAT, [], [number]))
    outputs = [*(kind.lower() for kind, _ in nodes[:-1]), changed]
    made = (helper.make_node(kind, inputs, [output]) for (kind, inputs), output in zip(nodes, outputs, strict=True))
    model.graph.node.extend(made)
    onnx.save(model, out / DECODER_FILE)
    return reseal(out)


def round_scores_by_batch(bundle: Path, out: Path) -> Path:
    """Copies a bundle and rounds its scores slightly, to multiples of a scale that all rows of a step share."""
    nodes = [
        ("Abs", ["exact"]),
        ("ReduceMax", ["abs"]),
        ("Div", ["reducemax", "number"]),
        ("Reciprocal", ["div"]),
        ("Mul", ["exact", "reciprocal"]),
        ("Round", ["mul"]),
        ("Mul", ["round", "div"]),
    ]
    return change_output(bundle, out, "best_scores", 30_000.0, nodes)


def verdicts(output: str) -> dict[str, str]:
    lines = [line for line in output.splitlines() if not line.startswith("      ")]
    return {match[2].strip(): match[1] for match in [LINE.fullmatch(line) for line in lines] if match is not None}


def failures(*arguments: str) -> list[str]:
    return refusal("verify", *arguments).partition(": failed: ")[2].split("; ")


@pytest.mark.promise("R3")
def test_a_correct_bundle_passes_every_check(
    bundle_of_any_kind: Path, arguments: list[str], capsys: Capture, measured: Measured
) -> None:
    command_line.run("verify", [str(bundle_of_any_kind), *arguments])
    output = capsys.readouterr().out
    assert verdicts(output) == dict.fromkeys(CHECKS, "pass")
    assert "60 of 60 translations are bitwise those of the graph decoder" in output
    assert output.count("0 of 40 translations differ in tokens from the translation alone, 0 in score bits") == 2
    if Bundle.open(bundle_of_any_kind).manifest.precision == "fp32":
        assert output.count("60 of 60 translations have PyTorch's tokens (99.9% required)") == 2
        measured("R3", "fp32: 60 of 60 have PyTorch's tokens, greedy and by a beam")


def test_slightly_wrong_logits_fail_their_check(noisy: Path, arguments: list[str], capsys: Capture) -> None:
    assert failures(str(noisy), *arguments, "--checks", "logits,invariance") == ["logits"]
    reference = "PyTorch" if Bundle.open(noisy).manifest.precision == "fp32" else "PyTorch in 8 bits"
    number = r"-?\d+\.\d{6}"
    match = re.search(
        rf"first difference: step \d+: the logit of token \d+ is {number} in {reference}, {number} in ONNX Runtime; "
        r"the best logit leads by \d\.\d\de[+-]\d\d: (.*)\n",
        capsys.readouterr().out,
    )
    assert match is not None
    assert match[1] in toy_test_sentences()[:60]


def test_the_logits_tolerance_is_an_option(noisy: Path, arguments: list[str]) -> None:
    command_line.run("verify", [str(noisy), *arguments, "--checks", "logits", "--logits-tolerance", "1000"])


def test_a_graph_that_depends_on_the_batch_fails_the_invariance_check(
    toy_bundle: Path, arguments: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """It passes when the same batch is compared with PyTorch: a scale per batch causes this fault."""
    wrong = round_scores_by_batch(toy_bundle, tmp_path / "wrong")
    assert failures(str(wrong), *arguments, "--checks", "logits,invariance") == CHECKS[-2:]
    pattern = r"first difference: step \d+: alone: score (\S+), in a batch of 2: score (\S+); the best"
    match = re.search(pattern, capsys.readouterr().out)
    assert match is not None
    assert float(match[1]) == pytest.approx(float(match[2]), abs=1e-3)


def test_wrong_eos_fails_token_checks(toy_bundle: Path, arguments: list[str], tmp_path: Path, capsys: Capture) -> None:
    wrong = copytree(toy_bundle, tmp_path / "wrong")
    change_manifest(wrong, lambda manifest: manifest.update(eos_id=9))
    assert failures(str(wrong), *arguments, "--checks", "tokens") == [*CHECKS[1:3], "golden sentences"]
    assert f"PyTorch: EOS, engine: token {EOS_ID}; the best logit leads by" in capsys.readouterr().out


def test_the_required_share_of_identical_translations_is_an_option(
    toy_bundle: Path, arguments: list[str], tmp_path: Path
) -> None:
    wrong = spoil_bundle(toy_bundle, tmp_path / "wrong")
    demands = ["--minimum-identical", "0", "--score-tolerance", "1000"]
    assert failures(str(wrong), *arguments, "--checks", "tokens", *demands) == ["golden sentences"]


def test_without_a_run_golden_sentences_and_invariance_are_checked_without_torch(toy_bundle: Path, data: str) -> None:
    arguments = [str(toy_bundle), "--data", data, *FEW]
    without_torch = "import sys; sys.modules['torch'] = None"
    program = f"{without_torch}; from dragoman.command_line import run; run('verify', {arguments})"
    done = subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    expected = dict.fromkeys(["logits", "tokens", *CHECKS[3:]], "pass") | {"logits": "skip", "tokens": "skip"}
    assert verdicts(done.stdout) == expected
    assert done.stdout.count("requires --run") == 2


@pytest.mark.parametrize("names", ["test.en,test.de", "test.de,test.en"])
def test_either_direction_is_verified(two_way_run: RunFolder, two_way_bundle: Path, tmp_path: Path, names: str) -> None:
    data = write_texts(tmp_path, names)
    command_line.run("verify", [str(two_way_bundle), "--run", str(two_way_run.path), "--data", data, *FEW])


def test_data_of_another_direction_are_refused(two_way_run: RunFolder, two_way_bundle: Path, tmp_path: Path) -> None:
    data = write_texts(tmp_path, "test.en,test.fr")
    message = refusal("verify", str(two_way_bundle), "--run", str(two_way_run.path), "--data", data)
    assert message == "dragoman verify: data: en-fr: expected a direction of the model: en-de, de-en"


def write_texts(folder: Path, names: str) -> str:
    """Writes a corpus with the same texts on both sides; returns its data specification."""
    paths = [folder / name for name in names.split(",")]
    for path in paths:
        path.write_text("".join(f"{text}\n" for text in RANDOM_TEXTS), encoding="utf-8")
    return f"files:{paths[0]},{paths[1]}"


def test_another_run_than_that_of_the_bundle_is_refused(two_way_run: RunFolder, toy_bundle: Path, data: str) -> None:
    message = refusal("verify", str(toy_bundle), "--run", str(two_way_run.path), "--data", data)
    assert message.startswith(f"dragoman verify: run: {two_way_run.path}: expected ")


def test_long_sentences_are_skipped(toy_bundle: Path, arguments: list[str], tmp_path: Path, capsys: Capture) -> None:
    data = write_pairs(tmp_path, "long", ("bird moon", " ".join(["bird"] * 32)))
    command_line.run("verify", [str(toy_bundle), *arguments, "--data", data, "--checks", "tokens"])
    assert "1 of 1 translations have PyTorch's tokens" in capsys.readouterr().out


def test_data_without_a_short_sentence_are_refused(toy_bundle: Path, arguments: list[str], tmp_path: Path) -> None:
    data = write_pairs(tmp_path, "long", (" ".join(["bird"] * 32),))
    message = refusal("verify", str(toy_bundle), *arguments[:2], "--data", data)
    assert message.startswith("dragoman verify: data: all 1 sentences ")


def test_unreadable_arguments_are_reported(toy_bundle: Path, arguments: list[str], data: str, tmp_path: Path) -> None:
    assert refusal("verify", str(tmp_path), *arguments).startswith(f"dragoman verify: {tmp_path}/manifest.json: ")
    assert "holds no checkpoint" in refusal("verify", str(toy_bundle), "--run", str(tmp_path), "--data", data)
    assert "is not a data specification" in refusal("verify", str(toy_bundle), *arguments[:2], "--data", "none")


@pytest.mark.parametrize("wrong", [["--split", "tset"], ["--checks", "logits,speed"], ["--batches", "0"]])
def test_an_unknown_value_is_refused(wrong: list[str], toy_bundle: Path, arguments: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.run("verify", [str(toy_bundle), *arguments, *wrong])
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err
