"""Downloads: archives come from the folder or a client; other versions are named, other content refused."""

from hashlib import sha256
from pathlib import Path

import pytest

from dragoman.model.data.sources.download import provide_archive
from dragoman.model.data.sources.source_list import Package
from dragoman.model.errors import CorpusError

CONTENT = b"archive"
LISTED = Package(version="1:2.0-1", sha256=sha256(CONTENT).hexdigest())

# Writes the archive of a version that the registry has; it has only those of its second argument.
CLIENT = """#!/bin/sh
for package; do :; done
case $package in
  {known}) printf archive > '{file}' ;;
  *) echo "E: no $package" >&2; exit 100 ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of archives; no client is on the system."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "archives").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "archives"


def install(folder: Path, name: str, known: str, file: str) -> None:
    client = folder.parent / "bin" / name
    client.write_text(CLIENT.format(known=known, file=file))
    client.chmod(0o755)


def test_the_listed_version_in_the_folder_is_taken_without_a_client(folder: Path) -> None:
    (folder / "tool_1%3a2.0-1_all.deb").write_bytes(CONTENT)
    (folder / "tool_1%3a3.0-1_all.deb").write_bytes(b"other")
    (folder / "tool-extra_1%3a2.0-1_all.deb").write_bytes(b"other")
    archive = provide_archive(folder, "debian", "tool", LISTED)
    assert (archive.version, archive.sha256, archive.warning) == (LISTED.version, LISTED.sha256, "")


def test_another_version_in_the_folder_is_taken_with_a_warning(folder: Path) -> None:
    (folder / "tool_1%3a3.0-1_all.deb").write_bytes(b"other")
    archive = provide_archive(folder, "debian", "tool", LISTED)
    assert archive.version == "1:3.0-1"
    assert "tool: read version 1:3.0-1, expected 1:2.0-1" in archive.warning


def test_other_content_of_the_listed_version_is_refused(folder: Path) -> None:
    (folder / "tool_1%3a2.0-1_all.deb").write_bytes(b"other")
    with pytest.raises(CorpusError, match="expected SHA-256"):
        provide_archive(folder, "debian", "tool", LISTED)


def test_a_missing_archive_is_downloaded(folder: Path) -> None:
    install(folder, "apt-get", "tool=1:2.0-1", "tool_1%3a2.0-1_all.deb")
    assert provide_archive(folder, "debian", "tool", LISTED).path.read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["tool_1%3a2.0-1_all.deb"]


def test_the_current_version_is_downloaded_if_the_registry_has_the_listed_one_no_longer(folder: Path) -> None:
    install(folder, "npm", "@a/tool", "a-tool-2.1.0.tgz")
    archive = provide_archive(folder, "npm", "@a/tool", Package(version="2.0.0", sha256=""))
    assert archive.version == "2.1.0"
    assert archive.warning


def test_a_failed_download_gives_the_words_of_the_client(folder: Path) -> None:
    install(folder, "apt-get", "other", "other_1_all.deb")
    with pytest.raises(CorpusError, match="tool: cannot be downloaded: apt-get: E: no tool"):
        provide_archive(folder, "debian", "tool", LISTED)


def test_a_system_without_the_client_is_told_so(folder: Path) -> None:
    with pytest.raises(CorpusError, match="apt-get is not on this system"):
        provide_archive(folder, "debian", "tool", LISTED)


def test_a_client_that_writes_nothing_is_named(folder: Path) -> None:
    install(folder, "apt-get", "tool=1:2.0-1", "unknown")
    with pytest.raises(CorpusError, match="wrote no archive"):
        provide_archive(folder, "debian", "tool", LISTED)


@pytest.mark.parametrize("file", ["some_tool-2.0.0-py3-none-any.whl", "Some.Tool-2.0.0.tar.gz"])
def test_names_of_wheels_are_compared_as_pypi_does(folder: Path, file: str) -> None:
    (folder / file).write_bytes(CONTENT)
    assert provide_archive(folder, "pypi", "some-tool", Package(version="2.0.0", sha256="")).path.name == file


def test_an_unpacked_package_has_no_version(folder: Path) -> None:
    (folder / "tool").mkdir()
    archive = provide_archive(folder, "debian", "tool", LISTED)
    assert (archive.path, archive.version) == (folder / "tool", "")
    assert "unknown" in archive.warning
