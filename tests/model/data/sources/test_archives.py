"""Archives: wanted files of folders, Debian packages, tar and zip files, and of archives inside of them."""

import gzip
from pathlib import Path

import pytest

from dragoman.model.data.sources.archives import read_members
from dragoman.model.errors import CorpusError
from tests.support.packages import deb_of, tar_of, zip_of

FILES = {
    "usr/a.txt": b"a",
    "usr/b.bin": b"b",
    "usr/c.txt.gz": gzip.compress(b"c"),
    "usr/pack.xpi": zip_of({"de/d.txt": b"d", "de/e.bin": b"e"}),
}
WANTED = {"usr/a.txt": b"a", "usr/c.txt": b"c", "usr/pack.xpi/de/d.txt": b"d"}


def read(path: Path) -> dict[str, bytes]:
    return dict(read_members(path, lambda name: name.endswith(".txt")))


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.deb", deb_of(FILES)), ("a.tgz", tar_of(FILES)), ("a.tar.gz", tar_of(FILES)), ("a.whl", zip_of(FILES))],
)
def test_every_form_of_archive_gives_the_wanted_files(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path / name) == WANTED


def test_a_folder_gives_the_wanted_files(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert read(tmp_path) == WANTED


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.deb", b"!<arch>\n"),
        ("a.deb", b"text"),
        ("a.deb", deb_of(FILES)[:-200]),
        ("a.tgz", tar_of(FILES)[:100]),
        ("a.whl", b"PK"),
        ("a.rpm", b""),
    ],
    # Archives contain the time: names from their bytes would differ between the processes of a run.
    ids=["deb without members", "text", "cut deb", "cut tgz", "cut wheel", "other kind"],
)
def test_a_broken_archive_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=f"{name}: cannot be read"):
        read(tmp_path / name)


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"a\.deb: cannot be read"):
        read(tmp_path / "a.deb")
