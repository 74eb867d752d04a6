"""Recorded traffic: plain times, or requests."""

from pathlib import Path

import pytest

from loadtest.scenario import read_trace


def write(folder: Path, content: str) -> Path:
    path = folder / "trace.jsonl"
    path.write_text(content)
    return path


def test_a_line_is_a_time_or_a_request(tmp_path: Path) -> None:
    lines = '0.5\n\n{"seconds": 0.25, "text": ["One."], "options": {"beam_size": 4}}\n'
    first, second = read_trace(write(tmp_path, lines))
    assert (first.seconds, first.text) == (0.25, ("One.",))
    assert first.options is not None
    assert first.options.given() == {"beam_size": 4}
    assert (second.seconds, second.text, second.options) == (0.5, None, None)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("0.5\nsoon\n", "^line 2: "),
        ('{"seconds": 1, "words": "One."}', "^line 1: .*Extra inputs"),
        ('{"text": ["One."]}', "^line 1: .*Field required"),
        ("\n", "at least one request"),
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_trace(write(tmp_path, content))
