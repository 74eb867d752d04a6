"""Opens the system to evaluate: training runs, a bundle, a running server, or a file of translations.

Imports are lazy: a file of translations needs neither PyTorch nor ONNX Runtime.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from dragoman.export.evaluate.system import Progress, Search, System, SystemUnusableError
from dragoman.model.data.corpus import Corpus, read_lines
from dragoman.serve.bundle.bundle import MANIFEST_FILE
from dragoman.serve.clients.channel import DEFAULTS, ClientSettings

CONFIG_FILE = "config.yaml"
SCHEMES = ("grpc", "http", "https")
EXPECTED = "run (several with commas: ensemble), bundle, grpc://HOST:PORT, http(s)://HOST:PORT or file of translations"


class TranslationsFile:
    """A file of translations: one line per sentence, corpora in order."""

    kind = "file"

    def __init__(self, path: Path) -> None:
        self._path = path

    def translate(self, corpora: Sequence[Corpus], progress: Progress) -> list[list[str]]:
        """Returns the lines of the file; raises SystemUnusableError if there is not one per sentence."""
        lines = read_lines(self._path)
        sentences = sum(len(corpus) for corpus in corpora)
        if len(lines) != sentences:
            raise SystemUnusableError(
                f"{self._path}: {len(lines)} lines, expected {sentences}: one per sentence pair without a blank side"
            )
        progress.update(sentences)
        remaining = iter(lines)
        return [[next(remaining) for _ in range(len(corpus))] for corpus in corpora]


def open_system(name: str, search: Search, connection: ClientSettings = DEFAULTS) -> System:
    """Opens the system at a path or URL (`https://` implies TLS); raises SystemUnusableError if the name is none."""
    if "://" in name:
        return _open_server(name, search, connection)
    path = Path(name)
    if (path / MANIFEST_FILE).is_file():
        from dragoman.export.evaluate.service_systems import open_bundle_system  # noqa: PLC0415 - lazy import

        return open_bundle_system(path, search)
    is_ensemble = "," in name and not path.exists()
    if is_ensemble or (path / CONFIG_FILE).is_file():
        from dragoman.export.evaluate.run_system import RunSystem  # noqa: PLC0415 - lazy import

        return RunSystem([Path(part) for part in name.split(",")] if is_ensemble else [path], search)
    if path.is_dir():
        raise SystemUnusableError(
            f"{name}: expected {MANIFEST_FILE} (bundle) or {CONFIG_FILE} (training run) in the folder"
        )
    if path.is_file():
        return TranslationsFile(path)
    raise SystemUnusableError(f"{name}: no such folder or file, expected {EXPECTED}")


def _open_server(url: str, search: Search, connection: ClientSettings) -> System:
    expected = "grpc://HOST:PORT, http://HOST:PORT or https://HOST:PORT"
    problem = f"{url}: expected {expected}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:  # unbalanced brackets, or a port that is not a number
        raise SystemUnusableError(problem) from error
    bare = url == f"{parts.scheme}://{parts.netloc}" and parts.username is None
    if parts.scheme not in SCHEMES or host is None or port is None or not bare:
        raise SystemUnusableError(problem)
    from dragoman.export.evaluate.service_systems import open_grpc_system, open_http_system  # noqa: PLC0415 - lazy import

    if parts.scheme == "grpc":
        return open_grpc_system(parts.netloc, search, connection)
    return open_http_system(host, port, search, replace(connection, tls=connection.tls or parts.scheme == "https"))
