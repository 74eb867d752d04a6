"""What a few files hold, read again when they change; a change that makes no sense leaves the old in its place.

Certificates and keys are renewed while a server runs, most often by renaming. Knows nothing of what the files mean;
`serve.service` asks for changes now and then, and nobody else waits for a disk.

Certificates and keys in PEM files: what cannot be used is told with its option and its file.

Used by `serve.api.auth`, for the server's own, and by `serve.clients.options`, for those of clients.
"""

import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

_log = structlog.get_logger("dragoman")

T = TypeVar("T")
# Of each file, what changes when it is written or replaced; None: it is not there.
_Signature = tuple[tuple[int, int, int] | None, ...]


class FileError(Exception):
    """A file cannot be used; the message names the setting, the file and what was expected."""


class ReloadedValue(Generic[T]):
    """A value that files hold.

    Attributes:
        value: what they held when they last made sense; may be read from any thread.
    """

    def __init__(self, what: str, paths: Iterable[Path], load: Callable[[], T]) -> None:
        """Reads the files.

        Args:
            what: the name of the value in the log.
            paths: which files.
            load: reads them.

        Raises:
            FileError: if they make no sense.
        """
        self._what = what
        self._paths = tuple(paths)
        self._load = load
        self._seen = self._sign()
        self.value = load()

    def refresh(self) -> None:
        """Reads the files again if they changed."""
        signature = self._sign()
        if signature == self._seen:
            return
        try:
            value = self._load()
        except FileError as error:
            _log.warning("not read again", what=self._what, problem=str(error))
        else:
            self.value = value
            _log.info("read again", what=self._what)
        # What changes while it is read has another signature and is read once more.
        self._seen = signature

    def _sign(self) -> _Signature:
        return tuple(map(_sign, self._paths))


def read_file(setting: str, path: Path) -> bytes:
    """Returns the content of a file.

    Raises:
        FileError: if it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"--{setting}: {path}: {error.strerror}") from error


def _sign(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_certificates(option: str, path: Path) -> bytes:
    """Returns the content of a file of certificates.

    Raises:
        FileError: if it cannot be read or holds none.
    """
    content = read_file(option, path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=content.decode())
    except (ssl.SSLError, ValueError) as error:
        raise FileError(f"--{option}: {path}: not a certificate in PEM") from error
    return content


def load_key(context: ssl.SSLContext, certificate: Path, option: str, path: Path) -> bytes:
    """Gives a context a certificate and its key, and returns the content of the key's file.

    Args:
        context: shows the certificate from now on.
        certificate: a file that `read_certificates` takes.
        option: of the key.
        path: of the key.

    Raises:
        FileError: if the key cannot be read, is none, or not that of the certificate.
    """
    content = read_file(option, path)
    try:
        # The empty password keeps OpenSSL from asking for one on the terminal.
        context.load_cert_chain(certificate, path, password="")
    except ssl.SSLError as error:
        problem = (
            f"not the key of the certificate in {certificate}"
            if error.reason == "KEY_VALUES_MISMATCH"
            else "not a key in PEM, or encrypted"
        )
        raise FileError(f"--{option}: {path}: {problem}") from error
    except OSError as error:  # one of the files has gone since it was read
        raise FileError(f"--{option}: {path}: {error.strerror}") from error
    return content
