"""`dragoman evaluate`: equal translations get equal scores from all systems; invalid arguments fail in one line."""

import json
import os
from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.export.evaluate.command import evaluate, format_evaluations
from dragoman.model.data.corpus import Corpus, read_corpus
from dragoman.model.run import RunFolder
from tests.support.commands import Capture, refusal
from tests.support.live import LiveService
from tests.support.toy import toy_test_sentences, write_pairs

pytestmark = pytest.mark.usefixtures("restored_logs")

SENTENCES = 60


@pytest.fixture
def names(toy_run: RunFolder, toy_bundle: Path, toy_server: LiveService) -> list[str]:
    """The toy model as a run, as a bundle, and as a server over gRPC and REST."""
    return [str(toy_run.path), str(toy_bundle), f"grpc://{toy_server.grpc_target}", toy_server.http_url]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_pairs(tmp_path, "some", toy_test_sentences()[:SENTENCES])


@pytest.fixture
def corpus(data: str) -> Corpus:
    return read_corpus(data)


@pytest.fixture
def perfect(tmp_path: Path, data: str) -> Path:
    """A file of translations equal to the references."""
    path = tmp_path / "perfect"
    path.write_text("".join(f"{line}\n" for line in read_corpus(data).targets))
    return path


@pytest.fixture
def poor(tmp_path: Path, corpus: Corpus) -> Path:
    """A file of translations with a wrong first word."""
    path = tmp_path / "poor"
    path.write_text("".join(f"nichts {line.partition(' ')[2]}\n" for line in corpus.targets))
    return path


def test_run_bundle_and_server_have_equal_figures(names: list[str], data: str, output: Path, capsys: Capture) -> None:
    reports, translations = [], []
    for name in names:
        command_line.run("evaluate", [name, "--data", data, "--output", str(output)])
        reports.append(capsys.readouterr().out.split("\n\n", 1))
        translations.append(output.read_text())
    assert len(set(translations)) == 1
    assert translations[0].count("\n") == SENTENCES
    assert len({figures for _, figures in reports}) == 1
    kinds = ["run", "bundle", "server", "server"]
    assert [head for head, _ in reports] == [
        f"system    {name} ({kind}, greedy)\ndata      {data}, test" for name, kind in zip(names, kinds, strict=True)
    ]


def test_a_baseline_is_compared(toy_bundle: Path, poor: Path, data: str, output: Path, capsys: Capture) -> None:
    command_line.run("evaluate", [str(toy_bundle), "--data", data, "--baseline", str(poor), "--output", str(output)])
    ours, theirs = output.read_text().splitlines(), poor.read_text().splitlines()
    expected = format_evaluations([evaluate(read_corpus(data), ours, theirs, literature=False)])
    head, figures = capsys.readouterr().out.split("\n\n", 1)
    assert head == f"system    {toy_bundle} (bundle, greedy)\nbaseline  {poor} (file)\ndata      {data}, test"
    assert figures == f"{expected}\n"


def test_each_direction_has_a_row(perfect: Path, data: str, tmp_path: Path, capsys: Capture) -> None:
    """A file holds the translations of all directions in order."""
    source, target = data.removeprefix("files:").split(",")
    both = tmp_path / "both"
    both.write_text(perfect.read_text() + Path(source).read_text())
    command_line.run("evaluate", [str(both), "--data", data, "--data", f"files:{target},{source}"])
    rows = capsys.readouterr().out.split("\n\n")[1].splitlines()[1:]
    assert [row.split()[:3] for row in rows] == [["en-de", "60", "100.00"], ["de-en", "60", "100.00"]]


def test_all_figures_are_written_as_json(toy_run: RunFolder, poor: Path, data: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    arguments = [str(toy_run.path), "--data", data, "--baseline", str(poor), "--literature", "--json", str(file)]
    command_line.run("evaluate", arguments)
    document = json.loads(file.read_text())
    assert document["system"] == {"name": str(toy_run.path), "kind": "run"}
    assert document["baseline"] == {"name": str(poor), "kind": "file"}
    assert document["settings"]["data"] == [data]
    assert document["settings"]["beam_size"] == 1
    assert {"dragoman", "sacrebleu", "sacremoses", "torch", "onnxruntime"} <= set(document["versions"])
    (direction,) = document["directions"]
    assert (direction["source_language"], direction["target_language"], direction["sentences"]) == ("en", "de", 60)
    assert list(direction["measures"]) == ["BLEU", "chrF", "literature BLEU"]
    bleu = direction["measures"]["BLEU"]
    assert bleu["system"]["score"] == direction["system"]["bleu"]
    assert bleu["baseline"]["low"] < bleu["baseline"]["score"] == direction["baseline"]["bleu"]
    assert 0 < bleu["p_value"] < 0.05
    assert "bs:1000|seed:12345" in bleu["signature"]


def test_json_without_a_baseline_has_null(perfect: Path, data: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command_line.run("evaluate", [str(perfect), "--data", data, "--json", str(file)])
    document = json.loads(file.read_text())
    assert document["baseline"] is None
    assert document["directions"][0]["measures"]["chrF"]["p_value"] is None


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (["--minimum-bleu", "99.5"], ", expected at least 99.5"),
        (["--minimum-exact", "0.01"], "en-de: exact share is 0.00%, expected at least 1.00%"),
    ],
)
def test_figures_below_a_minimum_fail(poor: Path, perfect: Path, data: str, option: list[str], problem: str) -> None:
    command_line.run("evaluate", [str(perfect), "--data", data, *option])
    assert problem in refusal("evaluate", str(poor), "--data", data, *option)


@pytest.mark.parametrize("option", ["beam-size", "no-repeat-ngram-tokens"])
def test_finished_translations_are_not_searched(poor: Path, perfect: Path, data: str, option: str) -> None:
    assert refusal("evaluate", str(poor), "--baseline", str(perfect), "--data", data, f"--{option}", "5").startswith(
        f"dragoman evaluate: {option}: 5: {poor} and {perfect}: "
    )


def test_an_unknown_system_is_reported(tmp_path: Path, poor: Path, data: str) -> None:
    assert refusal("evaluate", str(tmp_path / "missing"), "--data", data).startswith(
        f"dragoman evaluate: {tmp_path / 'missing'}: no such folder or file, expected "
    )
    assert "expected manifest.json" in refusal("evaluate", str(poor), "--data", data, "--baseline", str(tmp_path))


def test_unreadable_data_are_reported(poor: Path) -> None:
    assert "is not a data specification" in refusal("evaluate", str(poor), "--data", "none")


def test_a_file_with_translations_of_other_data_is_reported(poor: Path, tmp_path: Path) -> None:
    data = write_pairs(tmp_path, "few", toy_test_sentences()[:2])
    assert refusal("evaluate", str(poor), "--data", data).startswith(f"dragoman evaluate: {poor}: 60 lines, expected 2")


@pytest.mark.parametrize("option", ["output", "json"])
def test_an_output_without_a_folder_is_reported_first(poor: Path, tmp_path: Path, option: str) -> None:
    for path in (tmp_path / "missing" / "file", tmp_path):
        assert refusal("evaluate", str(poor), "--data", "none", f"--{option}", str(path)).startswith(
            f"dragoman evaluate: {option}: {path}: expected a file "
        )


def test_a_full_disk_is_reported(perfect: Path, data: str) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    assert refusal("evaluate", str(perfect), "--data", data, "--output", str(full)).startswith(
        f"dragoman evaluate: {full}: {os.strerror(28)}"
    )


@pytest.mark.parametrize("arguments", [["--split", "tset"], ["--beam-size", "0"], ["--minimum-bleu", "101"], []])
def test_an_invalid_value_is_reported_with_its_option(poor: Path, arguments: list[str], capsys: Capture) -> None:
    """Also a missing required option: the data."""
    data = ["--data", "none"] if arguments else []
    with pytest.raises(SystemExit) as ended:
        command_line.run("evaluate", [str(poor), *data, *arguments])
    assert ended.value.code == 2
    assert (arguments or ["--data"])[0] in capsys.readouterr().err
