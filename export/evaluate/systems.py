"""What can be evaluated: a run, a bundle, a running server, or a file of finished translations.

`open_system` tells them apart by what they are. Each translates the sources of corpora; none knows references or
scores. What a kind needs is imported when one of it is opened: a file needs neither torch nor ONNX Runtime. Called by
`dragoman evaluate`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from export.evaluate.system import Progress, Search, System, SystemUnusableError
from model.data.corpus import Corpus, read_lines
from serve.bundle.bundle import MANIFEST_FILE
from serve.clients.channel import DEFAULTS, ClientSettings

CONFIG_FILE = "config.yaml"
SCHEMES = ("grpc", "http", "https")
EXPECTED = "a run, a bundle, grpc://HOST:PORT, http://HOST:PORT, https://HOST:PORT or a file of translations"


class TranslationsFile:
    """Translations that somebody has made: a line for each sentence, of one corpus after the other."""

    kind = "file"

    def __init__(self, path: Path) -> None:
        self._path = path

    def translate(self, corpora: Sequence[Corpus], progress: Progress) -> list[list[str]]:
        """Returns the lines.

        Raises:
            CorpusError: if the file cannot be read.
            SystemUnusableError: if there are not as many as sentences.
        """
        lines = read_lines(self._path)
        sentences = sum(len(corpus) for corpus in corpora)
        if len(lines) != sentences:
            raise SystemUnusableError(
                f"{self._path}: {len(lines)} lines, expected {sentences}: one for each pair of the data, "
                "of which those with a blank side are left out"
            )
        progress.update(sentences)
        remaining = iter(lines)
        return [[next(remaining) for _ in range(len(corpus))] for corpus in corpora]


def open_system(name: str, search: Search, connection: ClientSettings = DEFAULTS) -> System:
    """Returns the system of a name, which is a path or a URL.

    Args:
        name: of the system.
        search: how translations are searched for.
        connection: how a server is reached; https:// says TLS by itself.

    Raises:
        SystemUnusableError: if it is none.
    """
    if "://" in name:
        return _open_server(name, search, connection)
    path = Path(name)
    if (path / MANIFEST_FILE).is_file():
        from export.evaluate.service_systems import open_bundle_system  # noqa: PLC0415 - see above

        return open_bundle_system(path, search)
    if (path / CONFIG_FILE).is_file():
        from export.evaluate.run_system import RunSystem  # noqa: PLC0415 - see above

        return RunSystem(path, search)
    if path.is_dir():
        raise SystemUnusableError(
            f"{name}: holds neither {MANIFEST_FILE}, as a bundle does, nor {CONFIG_FILE}, as a run does"
        )
    if path.is_file():
        return TranslationsFile(path)
    raise SystemUnusableError(f"{name}: no such folder or file, expected {EXPECTED}")


def _open_server(url: str, search: Search, connection: ClientSettings) -> System:
    expected = "grpc://HOST:PORT, http://HOST:PORT or https://HOST:PORT"
    problem = f"{url}: not the address of a server, expected {expected}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:  # brackets that do not match, or a port that is no number
        raise SystemUnusableError(problem) from error
    bare = url == f"{parts.scheme}://{parts.netloc}" and parts.username is None
    if parts.scheme not in SCHEMES or host is None or port is None or not bare:
        raise SystemUnusableError(problem)
    from export.evaluate.service_systems import open_grpc_system, open_http_system  # noqa: PLC0415 - see above

    if parts.scheme == "grpc":
        return open_grpc_system(parts.netloc, search, connection)
    return open_http_system(host, port, search, replace(connection, tls=connection.tls or parts.scheme == "https"))
