"""Failures of files are one line with path, reason and remedy."""

import errno
import os
from pathlib import Path

import pytest

from dragoman.model.errors import describe_os_error, reason_of


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "change its permissions"),
        (errno.EROFS, "choose a path on a disk that can be written"),
        (errno.ENOSPC, "free space"),
        (errno.EISDIR, "expected a file"),
        (errno.ENOENT, "check the path"),
    ],
)
def test_a_failed_system_call_names_path_reason_and_remedy(number: int, remedy: str) -> None:
    text = describe_os_error(OSError(number, os.strerror(number), "/a/b"))
    assert text.startswith(f"/a/b: {os.strerror(number)}: {remedy}")


@pytest.mark.parametrize("below", ["b", "b/c"])
def test_the_part_of_a_path_that_is_a_file_is_named(below: str, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(OSError, match="a") as failed:
        (tmp_path / "a" / below).mkdir(parents=True, exist_ok=True)
    assert describe_os_error(failed.value) == f"{tmp_path / 'a'}: is a file, expected a folder"


def test_a_reason_has_no_number_no_path_and_one_line() -> None:
    error = OSError(errno.ENOENT, "No such file or directory", "/a")
    assert reason_of(error) == "No such file or directory: check the path"
    assert reason_of(ValueError("a\n  b")) == "a b"
    assert reason_of(RecursionError()) == "nested too deeply"
