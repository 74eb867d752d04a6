"""Finds the archives of packages in a folder, or downloads them into it by the clients of their registries.

Nothing is installed, and no client runs as root for it: apt-get, npm and pip write an archive into a folder.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import yaml

from dragoman.model.data.sources.source_list import Package, Registry
from dragoman.model.errors import CorpusError

TIMEOUT_SECONDS = 600
_REGISTRIES: dict[Registry, Any] = yaml.safe_load(Path(__file__).with_name("registries.yaml").read_text("utf-8"))


class Archive(NamedTuple):
    """The archive of a package, its version and SHA-256; `warning` is how it differs from the list, if it does."""

    package: str
    path: Path
    version: str
    sha256: str
    warning: str


def provide_archive(folder: Path, registry: Registry, name: str, package: Package) -> Archive:
    """Returns the archive of a package: the listed version, else another one in the folder, else a new download.

    A folder with the name of the package is taken as its unpacked archive, of an unknown version. Raises
    CorpusError if the archive cannot be downloaded, or has another content than the listed one.
    """
    unpacked = folder / _file_name(name)
    if unpacked.is_dir():
        return Archive(name, unpacked, "", "", f"{name}: read from a folder, its version is unknown")
    found = dict(_archives(folder, registry, name))
    if not found:
        _download(folder, registry, name, package.version)
        found = dict(_archives(folder, registry, name))
    if not found:
        raise CorpusError(f"{name}: the client of {registry} wrote no archive to {folder}")
    version = package.version if package.version in found else max(found)
    path = found[version]
    digest = sha256(path.read_bytes()).hexdigest()
    if version == package.version and package.sha256 not in ("", digest):
        raise CorpusError(f"{path}: expected SHA-256 {package.sha256}, got {digest}: remove the file")
    other = "" if version == package.version else f"{name}: read version {version}, expected {package.version}"
    return Archive(name, path, version, digest, other)


def _archives(folder: Path, registry: Registry, name: str) -> Iterator[tuple[str, Path]]:
    """Yields version and path of the archives of a package in a folder."""
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(_REGISTRIES[registry]["file"], path.name)
        if match and _normal(match["NAME"]) == _normal(_file_name(name)):
            yield unquote(match["VERSION"]), path


def _file_name(name: str) -> str:
    """Returns the name of a package as npm spells it in file names: without a scope's mark and slash."""
    return name.removeprefix("@").replace("/", "-")


def _normal(name: str) -> str:
    """Returns the normalized name of a package of PyPI (PEP 503); those of other registries stay different."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _download(folder: Path, registry: Registry, name: str, version: str) -> None:
    """Downloads the listed version of a package or, if the registry has it no longer, the current one."""
    problem = ""
    for package in dict.fromkeys((f"{name}{_REGISTRIES[registry]['mark']}{version}", name)):
        # The folder is in the same file system, so that an archive appears complete or not at all.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as workshop:
            problem = _run_client(registry, package, workshop)
            if not problem:
                for path in Path(workshop).iterdir():
                    path.replace(folder / path.name)
                return
    raise CorpusError(f"{name}: cannot be downloaded: {problem}")


def _run_client(registry: Registry, package: str, workshop: str) -> str:
    """Runs a client in a folder; returns why it failed, or nothing."""
    command = [part.format(package=package, python=sys.executable) for part in _REGISTRIES[registry]["client"]]
    try:
        done = subprocess.run(  # noqa: S603 - names come from the list of sources
            command, cwd=workshop, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except FileNotFoundError:
        return f"{command[0]} is not on this system, expected it or the archive in the folder of --archives"
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {TIMEOUT_SECONDS} seconds"
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    return f"{command[0]}: {lines[-1]}"
