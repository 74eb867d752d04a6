"""Certificates and keys in PEM files: what cannot be used is told with its option and its file.

Used by `serve.api.auth`, for the server's own, and by `serve.clients.options`, for those of clients.
"""

import ssl
from pathlib import Path

from serve.files import FileError, read_file


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
