"""The commands `dragoman keys`."""

import json
from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.serve.host.state import State
from dragoman.serve.keys.key import describe_key, digest_of
from dragoman.serve.keys.store import KeyStore
from tests.support.cases import cases

CASES = cases(__file__)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["dragoman", "keys", *arguments])
    command_line.main()


def test_keys_are_managed_without_a_server(
    tmp_path: Path, state_url: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAGOMAN_STATE_DIR", str(tmp_path))
    if state_url is not None:
        monkeypatch.setenv("DRAGOMAN_STATE_URL", state_url)
    run(monkeypatch, "create", "web", "--characters", "5000", "--models", "a,b")
    text = capsys.readouterr().out.strip()
    state = State(tmp_path, state_url)
    assert KeyStore(state).get("web").matches(digest_of(text.encode()))
    run(monkeypatch, "change", "web", "--priority", "2", "--characters", "None")
    limits = KeyStore(state).get("web").limits
    assert (limits.characters, limits.priority, limits.models) == (None, 2, ("a", "b"))
    run(monkeypatch, "list", "--json")
    assert json.loads(capsys.readouterr().out) == [describe_key(KeyStore(state).get("web"))]
    for command, name, value in (("show", "priority", 2), ("usage", "characters", 0)):
        run(monkeypatch, command, "web", "--json")
        assert json.loads(capsys.readouterr().out)[name] == value
    for command in ("show web", "list", "usage web", "revoke web", "list"):
        run(monkeypatch, *command.split())
    shown = capsys.readouterr().out
    assert "models: a, b" in shown
    assert "characters: 0" in shown
    assert shown.splitlines()[-1].endswith("Z"), "the time of the revocation"
    assert text not in shown
    state.close()


@pytest.mark.parametrize(("arguments", "problem"), CASES["a wrong command ends with one line"])
def test_a_wrong_command_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.setenv("DRAGOMAN_STATE_DIR", str(tmp_path))
    with pytest.raises(SystemExit, match=problem):
        run(monkeypatch, *arguments)


def test_the_folder_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAGOMAN_STATE_DIR", raising=False)
    with pytest.raises(SystemExit, match="expected --state-dir"):
        run(monkeypatch, "list")
