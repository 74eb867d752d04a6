"""Values that are reloaded when their files change, and PEM files of certificates and keys.

Certificates and keys are renewed while a server runs, usually by renaming. If the new content is invalid, the old value
stays. An error names the option and the file.
"""

import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from dragoman.model.errors import UserError

_log = structlog.get_logger("dragoman")

T = TypeVar("T")
# Per file: modification time in ns, size in bytes, inode; None if the file is missing.
_Signature = tuple[tuple[int, int, int] | None, ...]


class FileError(UserError):
    """An invalid file; the message names the setting, the file and the reason."""


class ReloadedValue(Generic[T]):
    """A value that is loaded from files; `value`: the last valid value; any thread may read it."""

    def __init__(self, what: str, paths: Iterable[Path], load: Callable[[], T]) -> None:
        """Loads the value; `what` is its name in the log. Raises FileError if `load` rejects the files."""
        self._what = what
        self._paths = tuple(paths)
        self._load = load
        self._seen = self._sign()
        self.value = load()

    def refresh(self) -> None:
        """Reloads the value if a file changed."""
        signature = self._sign()
        if signature == self._seen:
            return
        try:
            value = self._load()
        except FileError as error:
            _log.warning("file_reload_failed", what=self._what, problem=str(error))
        else:
            self.value = value
            _log.info("file_reloaded", what=self._what)
        # A file that changes during the load has another signature next time and is loaded again.
        self._seen = signature

    def _sign(self) -> _Signature:
        return tuple(map(_sign, self._paths))


def read_file(setting: str, path: Path) -> bytes:
    """Returns the content of a file; raises FileError if the file cannot be read."""
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
    """Returns the content of a PEM file; raises FileError if it cannot be read or has no certificate."""
    content = read_file(option, path)
    try:
        # Comments between certificates may be of any encoding.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise FileError(f"--{option}: {path}: not a certificate in PEM") from error
    return content


def load_key(context: ssl.SSLContext, certificate: Path, option: str, path: Path) -> bytes:
    """Loads a certificate and its key into a context, and returns the content of the key file.

    The certificate is a file that `read_certificates` accepts, and `option` names the option of the key in errors.

    Raises FileError if the key cannot be read, is invalid, or does not match the certificate.
    """
    content = read_file(option, path)
    try:
        # Without a password, OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(certificate, path, password="")
    except ssl.SSLError as error:
        problem = (
            f"not the key of the certificate in {certificate}"
            if error.reason == "KEY_VALUES_MISMATCH"
            else "not a key in PEM, or encrypted"
        )
        raise FileError(f"--{option}: {path}: {problem}") from error
    except OSError as error:  # a file was removed after it was read
        raise FileError(f"--{option}: {path}: {error.strerror}") from error
    return content
