"""The examples of docs/library.md run, print what they state, and the page names every option, error and name."""

import re
from typing import Any

import pytest

import dragoman
from dragoman.serve.local.chunks import CHUNK_TEXTS, IN_FLIGHT
from dragoman.serve.local.options import EngineSettings, RequestFields
from tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "library.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_prints_what_it_states(
    example: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path))
    exec(example, {})  # noqa: S102 - the example is part of the repository
    printed = capsys.readouterr().out.splitlines()
    assert printed
    assert set(re.findall(r"print\(.*\)  # (.*)", example)) <= set(printed)


def test_the_page_names_every_option_and_error() -> None:
    named = set(re.findall(r"`(?:dragoman\.)?(\w+)`", TEXT))
    # Only a server stores glossaries and memories; `options` holds search options that have been parsed.
    assert RequestFields.__annotations__.keys() - {"glossary", "memory", "options"} <= named
    assert EngineSettings.__annotations__.keys() <= named
    assert f"reads ahead at most {IN_FLIGHT * CHUNK_TEXTS:,} texts" in TEXT
    assert {name for name in dragoman.__all__ if name.endswith("Error")} <= named
