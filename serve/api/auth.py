"""TLS for both ports: the server's certificate, and the authorities of its clients if those must have one, too.

New connections get what the files hold now; open ones go on. Over REST a client's certificate is asked for and checked,
but `serve.api.door` decides who needs one: probes have none. Built by `serve.service`.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from serve.files import WatchedFiles
from serve.pem_files import load_key, read_certificates

CERTIFICATE, KEY, CLIENT_CA = "tls-certificate-file", "tls-key-file", "tls-client-ca-file"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where certificate, key and the clients' authorities are; None: clients need no certificate."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the files hold, for either server."""

    context: ssl.SSLContext
    configuration: grpc.ServerCertificateConfiguration


class Tls:
    """What both servers need to speak TLS."""

    def __init__(self, files: TlsFiles) -> None:
        """Reads the files.

        Raises:
            FileError: if one cannot be read, is not what it should be, or the key is not that of the certificate.
        """
        paths = (files.certificate, files.key, files.client_ca)
        self.mutual = files.client_ca is not None
        self._files = WatchedFiles("certificates", filter(None, paths), lambda: _load(files))
        self._given = self._files.value

    def refresh(self) -> None:
        """Reads the files again if they changed."""
        self._files.refresh()

    def http_context(self) -> ssl.SSLContext:
        """Returns the context of a server, which gives every connection the certificate of now."""
        context = _new_context()
        context.sni_callback = self._choose_context
        # Both are copied to a connection before its context is chosen.
        context.verify_mode = self._files.value.context.verify_mode
        return context

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Returns the credentials of a server, which give every connection the certificate of now."""
        initial = self._files.value.configuration
        fetch: Any = self._fetch_configuration  # whose declared type forgets that there may be nothing new
        return grpc.dynamic_ssl_server_credentials(initial, fetch, self.mutual)

    def _choose_context(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._files.value.context

    def _fetch_configuration(self) -> grpc.ServerCertificateConfiguration | None:
        """Returns what is new since the last call, which comes with every connection; None: nothing."""
        loaded = self._files.value
        if loaded is self._given:
            return None
        self._given = loaded
        return loaded.configuration


def _load(files: TlsFiles) -> _Loaded:
    certificate = read_certificates(CERTIFICATE, files.certificate)
    context = _new_context()
    key = load_key(context, files.certificate, KEY, files.key)
    authorities = None if files.client_ca is None else read_certificates(CLIENT_CA, files.client_ca)
    if authorities is not None:
        context.load_verify_locations(cadata=authorities.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
    return _Loaded(context, grpc.ssl_server_certificate_configuration([(key, certificate)], authorities))


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
