"""TLS for both ports: the server's certificate, and the authorities of its clients if those must have one, too.

New connections get what the files hold now; open ones go on. Over REST a client's certificate is asked for and checked,
but `serve.api.auth` decides who needs one: probes have none. Built by `serve.service`.

Keys that clients show as `Authorization: Bearer KEY`, over REST and gRPC alike.

Only digests are kept, and no key is ever written anywhere. Comparing takes as long whatever is compared, so that nobody
learns from the clock how much of a key is right. Built by `serve.service`.

Who is let in: whoever has a key, and over mutual TLS a certificate; with neither asked for, everybody.

Both interfaces ask it before they do anything for a request, except for probes and health. Knows neither protocol.

From settings to what secures both ports: TLS, the keys of clients, and that of the administration.

Every mistake in the settings or the files is found here, before anything listens. Built by `serve.service`.
"""

import hashlib
import hmac
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc

from serve.errors import UnauthorizedError
from serve.files import FileError, ReloadedValue, load_key, read_certificates, read_file
from serve.settings import ServeSettings

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
        self._files = ReloadedValue("certificates", filter(None, paths), lambda: _load_tls(files))
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


def _load_tls(files: TlsFiles) -> _Loaded:
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


FILE = "api-keys-file"
# What a header can carry.
_KEY = re.compile(rb"[!-~]+")


class ApiKeys:
    """The keys that open, in memory or in a file."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Keeps the digests of keys that never change."""
        self._digests = tuple(_digest(key.encode()) for key in keys)
        self._file: ReloadedValue[tuple[bytes, ...]] | None = None

    @classmethod
    def open(cls, path: Path) -> Self:
        """Returns the keys of a file, one a line; they change with it.

        Raises:
            FileError: if it cannot be read or holds no keys.
        """
        ring = cls(())
        ring._file = ReloadedValue("keys", [path], lambda: _load_keys(path))
        return ring

    def refresh(self) -> None:
        """Reads the file again if it changed."""
        if self._file is not None:
            self._file.refresh()

    def opens(self, authorization: str) -> bool:
        """Tells whether the value of the header `authorization` holds one of the keys."""
        scheme, _, key = authorization.partition(" ")
        shown = _digest(key.strip().encode(errors="replace"))
        digests = self._digests if self._file is None else self._file.value
        # Every key is compared, whichever is the right one.
        matches = [hmac.compare_digest(shown, digest) for digest in digests]
        return scheme.lower() == "bearer" and any(matches)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _load_keys(path: Path) -> tuple[bytes, ...]:
    digests = []
    for number, line in enumerate(read_file(FILE, path).splitlines(), start=1):
        key = line.strip()
        if not key or key.startswith(b"#"):
            continue
        if not _KEY.fullmatch(key):
            problem = "expected a key of visible ASCII characters, without white space"
            raise FileError(f"--{FILE}: {path}: line {number}: {problem}")
        digests.append(_digest(key))
    if not digests:
        raise FileError(f"--{FILE}: {path}: no key in it, expected one a line")
    return tuple(digests)


class Authenticator:
    """What is asked of clients."""

    def __init__(self, keys: ApiKeys | None = None, *, certificates: bool = False) -> None:
        """Keeps what is asked for.

        Args:
            keys: any of them opens; None: no key is needed.
            certificates: whether a client's certificate is needed.
        """
        self._keys = keys
        self._certificates = certificates

    @property
    def locked(self) -> bool:
        """Whether anything is asked for."""
        return self._keys is not None or self._certificates

    def check_certificate(self, *, shown: bool) -> None:
        """Lets a connection in.

        Raises:
            UnauthorizedError: if it shows no certificate and needs one; a wrong one never makes a connection.
        """
        if self._certificates and not shown:
            raise UnauthorizedError("client certificate: none, expected one of an authority that the server trusts")

    def check_key(self, authorization: str) -> None:
        """Lets a request in.

        Raises:
            UnauthorizedError: if the value of its header `authorization` holds no key that opens.
        """
        if self._keys is not None and not self._keys.opens(authorization):
            raise UnauthorizedError("authorization: expected `Bearer` and a key")

    def refresh(self) -> None:
        """Reads the keys again if their file changed."""
        if self._keys is not None:
            self._keys.refresh()


@dataclass(frozen=True, slots=True)
class Security:
    """What keeps strangers out.

    Attributes:
        tls: for both ports; None: they speak in the clear.
        authenticator: who may ask for translations.
        admin_authenticator: who may administrate; None: nobody.
    """

    tls: Tls | None
    authenticator: Authenticator
    admin_authenticator: Authenticator | None

    @classmethod
    def open(cls, settings: ServeSettings) -> Self:
        """Reads every file that the settings name.

        Raises:
            FileError: if one cannot be used, or they do not go together.
            SystemExit: if the admin key cannot be had.
        """
        tls, admin_key = _open_tls(settings), settings.read_admin_key()
        return cls(
            tls=tls,
            authenticator=Authenticator(_open_keys(settings), certificates=tls is not None and tls.mutual),
            admin_authenticator=None if admin_key is None else Authenticator(ApiKeys([admin_key])),
        )

    def refresh(self) -> None:
        """Reads again what changed."""
        if self.tls is not None:
            self.tls.refresh()
        self.authenticator.refresh()


def _open_tls(settings: ServeSettings) -> Tls | None:
    certificate, key, client_ca = settings.tls_certificate_file, settings.tls_key_file, settings.tls_client_ca_file
    if certificate is not None and key is not None:
        return Tls(TlsFiles(certificate, key, client_ca))
    given = {CERTIFICATE: certificate, KEY: key, CLIENT_CA: client_ca}
    for name, path in given.items():
        if path is not None:
            raise FileError(f"--{name}: {path}: expected --{CERTIFICATE} and --{KEY} beside it")
    return None


def _open_keys(settings: ServeSettings) -> ApiKeys | None:
    if settings.api_keys_file is not None:
        if settings.api_keys is not None:
            raise FileError(f"--api-keys-file: {settings.api_keys_file}: expected no file beside --api-keys")
        return ApiKeys.open(settings.api_keys_file)
    if settings.api_keys is None:
        return None
    keys = settings.api_keys.get_secret_value().split()
    if not keys:
        raise FileError("--api-keys: no key in it, expected one or several, with white space between them")
    return ApiKeys(keys)
