"""The commands `dragoman glossaries`."""

import json
from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.serve.glossaries.store import SHARED, GlossaryStore
from dragoman.serve.host.state import State
from dragoman.serve.protect.terms.entry import Entry
from tests.support.cases import cases

CASES = cases(__file__)


@pytest.fixture(autouse=True)
def _state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_STATE_DIR", str(tmp_path / "state"))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["dragoman", "glossaries", *arguments])
    command_line.main()


@pytest.mark.parametrize(("name", "text"), [("a.tsv", "house\tHaus\tHauses\n"), ("A.CSV", "house,Haus,Hauses\n")])
def test_glossaries_are_managed_without_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    run(monkeypatch, "create", "farm", str(file), "en", "de")
    glossary_id = capsys.readouterr().out.strip()
    state = State(tmp_path / "state")
    assert GlossaryStore(state).of(SHARED).entries(glossary_id, "en", "de") == (Entry("house", ("Haus", "Hauses")),)
    state.close()
    run(monkeypatch, "show", glossary_id, "--source-language", "en", "--target-language", "de")
    assert capsys.readouterr().out == "house\tHaus\tHauses\n"
    for command in (("list",), ("show", glossary_id)):
        run(monkeypatch, *command)
        shown = capsys.readouterr().out
        for part in (glossary_id, "farm", "en-de: 1"):
            assert part in shown
    run(monkeypatch, "show", glossary_id, "--source-language", "en", "--target-language", "de", "--json")
    entry = {"source": "house", "targets": ["Haus", "Hauses"], "match_case": False}
    assert json.loads(capsys.readouterr().out) == [entry]
    run(monkeypatch, "show", glossary_id, "--json")
    glossary = json.loads(capsys.readouterr().out)
    run(monkeypatch, "list", "--json")
    (row,) = json.loads(capsys.readouterr().out)
    assert row == glossary
    assert row["dictionaries"] == [{"source_language": "en", "target_language": "de", "entry_count": 1}]
    run(monkeypatch, "delete", glossary_id)
    for options, empty in (((), "no glossary"), (("--json",), "[]")):
        run(monkeypatch, "list", *options)
        assert capsys.readouterr().out == f"{empty}\n"


@pytest.mark.parametrize(("name", "text", "problem"), CASES["an unusable file ends with one line"])
def test_an_unusable_file_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | None, problem: str
) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match=problem):
        run(monkeypatch, "create", "farm", str(file), "en", "de")


@pytest.mark.parametrize("command", ["show", "delete"])
def test_an_unknown_glossary_ends_with_one_line(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    with pytest.raises(SystemExit, match=f"dragoman glossaries {command}: glossary 'x': unknown"):
        run(monkeypatch, command, "x")
