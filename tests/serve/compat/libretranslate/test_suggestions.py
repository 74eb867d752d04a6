"""Translations that clients suggest over LibreTranslate's interface."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.serve.compat.libretranslate import suggestions
from dragoman.serve.compat.libretranslate.suggestions import Suggestion, SuggestionStore
from dragoman.serve.host.state import State
from tests.support.live import LiveService, run_service

BETTER = {"q": "alpha", "s": "Alpha.", "source": "en", "target": "DE"}
STORED = {**BETTER, "target": "de"}


@pytest.fixture
def served(bundle_path: Path, tmp_path: Path) -> Iterator[LiveService]:
    with run_service(bundle_path, state_dir=tmp_path, libretranslate_suggestions=True) as live:
        yield live


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[object]:
    monkeypatch.setattr("sys.argv", ["dragoman", "suggestions", *arguments])
    capsys.readouterr()
    command_line.main()
    # The service may log at any time.
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


def test_suggestions_are_stored_until_the_operator_deletes_them(
    served: LiveService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert served.get("/frontend/settings").json()["suggestions"] is True
    for way in ({"json": BETTER}, {"data": {**BETTER, "source": "auto"}}):
        answer = served.post(path="/suggest", **way)
        assert (answer.status_code, answer.json()) == (200, {"success": True})
    both = [STORED, {**STORED, "source": "auto"}]
    state = ("--state-dir", str(tmp_path))
    assert printed(monkeypatch, capsys, *state) == both
    assert printed(monkeypatch, capsys, *state, "--delete") == both
    assert printed(monkeypatch, capsys, *state) == []


@pytest.mark.parametrize("name", BETTER)
def test_every_parameter_is_required(served: LiveService, name: str) -> None:
    answer = served.post({**BETTER, name: ""}, path="/suggest")
    assert (answer.status_code, answer.json()) == (400, {"error": f"Invalid request: missing {name} parameter"})


def test_long_texts_and_unknown_languages_are_refused(served: LiveService) -> None:
    long = served.post({**BETTER, "s": "a" * 10_001}, path="/suggest")
    assert long.json() == {"error": "Invalid request: request (10001) exceeds text limit (10000)"}
    assert served.post({**BETTER, "target": "zz"}, path="/suggest").json() == {"error": "zz is not supported"}


def test_the_number_of_suggestions_is_bounded(
    tmp_path: Path, state_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suggestions, "MAX_SUGGESTIONS", 2)
    state = State(tmp_path, state_url)
    store = SuggestionStore(state)
    first, second = Suggestion("a\0", "b", "en", "de"), Suggestion("c", "d", "en", "de")
    assert [store.add(first, "a"), store.add(second, "b"), store.add(second, "c")] == [True, True, False]
    (number, found), (_, last) = store.list()
    assert (found.q, last) == ("a", second)
    store.delete(number)
    assert store.add(second, "c")
    assert [item for _, item in store.list()] == [second, second]
    state.close()


def test_one_client_leaves_room_for_the_suggestions_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggestions, "MAX_SUGGESTIONS", 4)
    state = State(tmp_path)
    store, suggestion = SuggestionStore(state), Suggestion(**STORED)
    assert [store.add(suggestion, "first") for _ in range(3)] == [True, True, False]
    assert store.add(suggestion, "second")
    state.close()


def test_a_server_without_a_state_directory_does_not_start(bundle_path: Path) -> None:
    with (
        pytest.raises(Exception, match="--libretranslate-suggestions: expected --state-dir"),
        run_service(bundle_path, libretranslate_suggestions=True),
    ):
        pass
