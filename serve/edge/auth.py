"""TLS and authentication over gRPC and REST.

Certificates and API keys are reloaded when their files change; new connections and requests use the new ones. TLS
requests and verifies a client certificate; the check that there is one happens here, because probes need none. Errors
in settings and files are reported at startup.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc

from dragoman.serve.errors import UnauthorizedError
from dragoman.serve.host.files import FileError, ReloadedValue, load_key, read_certificates
from dragoman.serve.host.state import State
from dragoman.serve.keys.account import Account
from dragoman.serve.keys.accounts import Accounts
from dragoman.serve.keys.ring import KeyRing, check_form
from dragoman.serve.keys.store import KeyStore
from dragoman.serve.settings import ServeSettings

CERTIFICATE, KEY, CLIENT_CA = "tls-certificate-file", "tls-key-file", "tls-client-ca-file"


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The loaded files in the form of each server."""

    context: ssl.SSLContext
    configuration: grpc.ServerCertificateConfiguration


class Tls:
    """TLS contexts and credentials for both servers."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        """Reads the certificate, its key and the CA of clients, without which they need no certificate.

        Raises FileError if a file cannot be read or parsed, or the key does not match the certificate.
        """
        paths = (certificate, key, client_ca)
        self.mutual = client_ca is not None
        self._files = ReloadedValue("certificates", filter(None, paths), lambda: _load_tls(*paths))
        self._given = self._files.value

    def refresh(self) -> None:
        """Reloads the files if they changed."""
        self._files.refresh()

    def http_context(self) -> ssl.SSLContext:
        """Returns the server context; every new connection gets the current certificate."""
        context = _new_context()
        context.sni_callback = self._choose_context
        # A connection copies the verify mode before the SNI callback selects its context.
        context.verify_mode = self._files.value.context.verify_mode
        return context

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Returns the server credentials; every new connection gets the current certificate."""
        initial = self._files.value.configuration
        fetch: Any = self._fetch_configuration  # the stub's type lacks None, which means unchanged
        return grpc.dynamic_ssl_server_credentials(initial, fetch, self.mutual)

    def _choose_context(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._files.value.context

    def _fetch_configuration(self) -> grpc.ServerCertificateConfiguration | None:
        """Returns the configuration if it changed since the last call, else None; runs for each connection."""
        loaded = self._files.value
        if loaded is self._given:
            return None
        self._given = loaded
        return loaded.configuration


def _load_tls(certificate: Path, key: Path, client_ca: Path | None) -> _Loaded:
    chain = read_certificates(CERTIFICATE, certificate)
    context = _new_context()
    private_key = load_key(context, certificate, KEY, key)
    authorities = None if client_ca is None else read_certificates(CLIENT_CA, client_ca)
    if authorities is not None:
        context.load_verify_locations(cadata=authorities.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
    return _Loaded(context, grpc.ssl_server_certificate_configuration([(private_key, chain)], authorities))


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


class Authenticator:
    """Authenticates requests by API key or client certificate; allows all requests if neither is configured."""

    def __init__(self, keys: KeyRing | None = None, *, certificates: bool = False) -> None:
        self._keys = keys
        self._certificates = certificates

    @property
    def required(self) -> bool:
        """Whether any authentication is required."""
        return self._keys is not None or self._certificates

    @property
    def has_keys(self) -> bool:
        """Whether requests need a key."""
        return self._keys is not None

    def check_certificate(self, *, shown: bool) -> None:
        """Raises UnauthorizedError if a required certificate is missing; TLS itself rejects invalid ones."""
        if self._certificates and not shown:
            raise UnauthorizedError("client certificate: none, expected one signed by a trusted authority")

    def check_key(self, *authorizations: str) -> Account | None:
        """Returns the account of the key in the only `authorization` header; None: no key is required.

        Raises UnauthorizedError if a key is required and there is no valid one.
        """
        if self._keys is None:
            return None
        if len(authorizations) > 1:
            raise UnauthorizedError("authorization: expected one header, got several")
        scheme, _, key = authorizations[0].partition(" ") if authorizations else ("", "", "")
        account = self._keys.find(key.strip()) if scheme.lower() == "bearer" else None
        if account is None:
            raise UnauthorizedError("authorization: expected `Bearer` and a valid key")
        return account

    def find_account(self, key_id: str) -> Account | None:
        """Returns the account of the key that a request had earlier; None: no key was, or is required.

        Raises UnauthorizedError if the key is not accepted any more.
        """
        if self._keys is None or not key_id:
            return None
        account = self._keys.find_id(key_id)
        if account is None:
            raise UnauthorizedError("the API key of the request is not accepted any more")
        return account

    def refresh(self) -> None:
        """Reloads the keys if their file changed."""
        if self._keys is not None:
            self._keys.refresh()

    async def refresh_stored(self) -> None:
        """Reloads the keys of the database if one changed."""
        if self._keys is not None:
            await self._keys.refresh_stored()


@dataclass(frozen=True, slots=True)
class Security:
    """TLS and authentication of the service.

    Attributes:
        tls: None: no encryption.
        authenticator: of clients.
        admin_authenticator: of operators; None: there are no routes for them.
        store: of the keys in the database; None: there is none.
    """

    tls: Tls | None
    authenticator: Authenticator
    admin_authenticator: Authenticator | None
    accounts: Accounts
    store: KeyStore | None

    @classmethod
    def open(cls, settings: ServeSettings, state: State | None = None) -> Self:
        """Reads every file that the settings name, and the keys of the database.

        Raises FileError if a file or a key is invalid, or the files do not fit together; SystemExit if the admin key
        cannot be read.
        """
        tls, admin_key = _open_tls(settings), settings.read_admin_key()
        if admin_key is not None:
            file = settings.admin_key_file
            check_form(admin_key.encode(), "admin-key" if file is None else f"admin-key-file: {file}")
        accounts = Accounts(state)
        store = None if state is None else KeyStore(state)
        keys = _open_keys(settings, accounts, store)
        return cls(
            tls=tls,
            authenticator=Authenticator(keys, certificates=tls is not None and tls.mutual),
            admin_authenticator=None if admin_key is None else Authenticator(KeyRing(Accounts(None), [admin_key])),
            accounts=accounts,
            store=store,
        )

    def refresh(self) -> None:
        """Reloads the files that changed."""
        if self.tls is not None:
            self.tls.refresh()
        self.authenticator.refresh()

    async def synchronize(self) -> None:
        """Writes the counts of keys to the database, and reads the keys that changed. Must be called regularly."""
        await self.accounts.write()
        await self.authenticator.refresh_stored()


def _open_tls(settings: ServeSettings) -> Tls | None:
    certificate, key, client_ca = settings.tls_certificate_file, settings.tls_key_file, settings.tls_client_ca_file
    if certificate is not None and key is not None:
        return Tls(certificate, key, client_ca)
    given = {CERTIFICATE: certificate, KEY: key, CLIENT_CA: client_ca}
    missing = " and ".join(f"--{name}" for name in (CERTIFICATE, KEY) if given[name] is None)
    for name, path in given.items():
        if path is not None:
            raise FileError(f"--{name}: {path}: expected {missing} too")
    return None


def _open_keys(settings: ServeSettings, accounts: Accounts, store: KeyStore | None) -> KeyRing | None:
    if settings.stored_api_keys and store is None:
        raise FileError("--stored-api-keys: expected --state-dir too")
    stored = store if settings.stored_api_keys else None
    if settings.api_keys_file is not None:
        if settings.api_keys is not None:
            raise FileError(
                f"--api-keys-file: {settings.api_keys_file}: expected only one of --api-keys-file and --api-keys"
            )
        return KeyRing.open(accounts, settings.api_keys_file, stored)
    if settings.api_keys is None:
        return None if stored is None else KeyRing(accounts, (), stored)
    keys = settings.api_keys.get_secret_value().split()
    if not keys:
        raise FileError("--api-keys: expected one or more keys separated by white space, got none")
    for number, key in enumerate(keys, start=1):
        check_form(key.encode(), f"api-keys: key {number}")
    return KeyRing(accounts, keys, stored)
