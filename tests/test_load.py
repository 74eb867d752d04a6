"""`dragoman load` against a real service with fake models."""

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.load import LoadCommand
from tests.live import LiveService

# No machine is late by this much; the tests are not about speed.
NEVER_LATE_SECONDS = 60.0


@pytest.fixture(name="sentences")
def _sentences(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.txt"
    path.write_text("alpha beta.\none two three.\n")
    return path


def make_command(live: LiveService, sentences: Path, **options: Any) -> LoadCommand:
    defaults: dict[str, Any] = {
        "grpc_target": live.grpc_target,
        "rest_url": live.http_url,
        "sentences": sentences,
        "rate": 40.0,
        "warm_up_seconds": 0.1,
        "duration_seconds": 0.5,
        "max_lag_seconds": NEVER_LATE_SECONDS,
    }
    return LoadCommand(**(defaults | options))


def test_the_last_line_is_a_document_with_both_runs(
    live: LiveService, sentences: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_command(live, sentences, protocol="both").cli_cmd()
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [run["protocol"] for run in document["runs"]] == ["grpc", "rest"]
    assert document["settings"]["seed"] == 1
    assert document["void"] is False


@pytest.mark.parametrize("protocol", ["grpc", "rest"])
def test_a_service_answers_every_request(
    live: LiveService, sentences: Path, capsys: pytest.CaptureFixture[str], protocol: str
) -> None:
    make_command(live, sentences, protocol=protocol, texts_per_request=2).cli_cmd()
    (run,) = json.loads(capsys.readouterr().out.splitlines()[-1])["runs"]
    assert run["sent"] == run["ok"] > 0
    assert run["errors"] == {}
    assert run["texts_per_second"] == pytest.approx(2 * run["requests_per_second"])


def test_invalid_requests_are_counted_and_not_lost(
    live: LiveService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sentences.txt"
    path.write_text("alpha " * 2000)
    make_command(live, path, protocol="both").cli_cmd()
    runs = json.loads(capsys.readouterr().out.splitlines()[-1])["runs"]
    assert [run["errors"] for run in runs] == [{"INVALID_ARGUMENT": runs[0]["sent"]}, {"400 invalid": runs[1]["sent"]}]


def test_constant_arrivals_make_a_known_number_of_requests(
    live: LiveService, sentences: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_command(live, sentences, arrivals="constant", warm_up_seconds=0.0).cli_cmd()
    (run,) = json.loads(capsys.readouterr().out.splitlines()[-1])["runs"]
    assert run["sent"] == 20


def test_a_late_generator_ends_with_status_1_and_says_so_twice(
    live: LiveService, sentences: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No generator is punctual to the nanosecond."""
    with pytest.raises(SystemExit) as exit_info:
        make_command(live, sentences, max_lag_seconds=1e-9).cli_cmd()
    output = capsys.readouterr().out
    assert exit_info.value.code == 1
    assert "VOID: the generator was late" in output
    assert json.loads(output.splitlines()[-1])["void"] is True


def test_a_missing_file_of_sentences_is_named(live: LiveService, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"dragoman load: sentences: .*missing\.txt"):
        make_command(live, tmp_path / "missing.txt").cli_cmd()
