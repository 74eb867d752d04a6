"""Files of keys: names and limits, and errors that name the line and contain no key."""

from pathlib import Path

import pytest

from dragoman.serve.host.files import FileError
from dragoman.serve.keys.key import KeyLimits
from dragoman.serve.keys.ring import read_keys
from tests.support.cases import cases

CASES = cases(__file__)


def test_each_line_is_a_key_with_its_name_and_limits(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(
        "one name=web characters=10 period=day models=a,b\n\n  # comment\n two\tpriority=-3 concurrency=2\n"
    )
    first, second = read_keys(path, counting=True)
    assert (first.name, first.id) == ("web", "file:web")
    assert first.limits == KeyLimits(characters=10, period="day", models=("a", "b"))
    assert (second.name, second.limits) == ("", KeyLimits(priority=-3, concurrency=2))


@pytest.mark.parametrize(("line", "problem"), CASES["an invalid line is named without the key"])
def test_an_invalid_line_is_named_without_the_key(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "keys"
    path.write_text(f"fine\n{line}\n")
    with pytest.raises(FileError, match=problem) as raised:
        read_keys(path, counting="state-dir" not in problem)
    assert f"{path}: line " in str(raised.value)
    assert "secret" not in str(raised.value)
    assert "part" not in str(raised.value)
