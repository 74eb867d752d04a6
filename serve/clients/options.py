"""The options of every command that asks a running server: TLS, and the key of a client.

What cannot be used is found here, before anything is asked, and told by the name of its option; the key is never told.
Inherited by `dragoman translate`, `evaluate` and `load`, each with environment variables of its own prefix.
"""

import re
import ssl
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from serve.clients.channel import DEFAULTS, ClientSettings
from serve.files import FileError, load_key, read_certificates

API_KEY, TLS = "api-key", "tls"
CA, CERTIFICATE, KEY = "tls-ca-file", "tls-certificate-file", "tls-key-file"
# What a header can carry.
_SENDABLE = re.compile(r"[!-~]+")


class ConnectionOptions(BaseSettings):
    """How a server is reached that speaks TLS or asks for a key."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    api_key: SecretStr | None = Field(
        None,
        description="What the server asks clients for. Best in the environment, where each command has a name for it: "
        "DRAGOMAN_TRANSLATE_API_KEY, DRAGOMAN_EVALUATE_API_KEY, DRAGOMAN_LOAD_API_KEY.",
    )
    tls: bool = Field(False, description="Speak TLS with the server; each of the three files says so, too.")
    tls_ca_file: Path | None = Field(
        None, description="PEM file of the authorities that may vouch for the server. Default: those of the system."
    )
    tls_certificate_file: Path | None = Field(
        None, description="PEM file of this client's certificate, for a server that asks for one."
    )
    tls_key_file: Path | None = Field(None, description="PEM file of its key.")

    def connection(self, *urls: str, timeout_seconds: float = DEFAULTS.timeout_seconds) -> ClientSettings:
        """Returns how servers are reached.

        Args:
            urls: their addresses, as far as these have a scheme.
            timeout_seconds: how long a call may take, retries included.

        Raises:
            FileError: if an option cannot be used, or does not go with another one or with an address.
        """
        self._check_key()
        self._check_files()
        self._check_schemes(urls)
        return ClientSettings(
            timeout_seconds=timeout_seconds,
            api_key=None if self.api_key is None else self.api_key.get_secret_value(),
            tls=self.tls,
            ca_file=self.tls_ca_file,
            certificate_file=self.tls_certificate_file,
            key_file=self.tls_key_file,
        )

    def _check_key(self) -> None:
        # Not by the library behind the options, which shows what it refuses.
        if self.api_key is not None and not _SENDABLE.fullmatch(self.api_key.get_secret_value()):
            raise FileError(f"--{API_KEY}: expected a key of visible ASCII characters, without white space")

    def _check_files(self) -> None:
        certificate, key = self.tls_certificate_file, self.tls_key_file
        if self.tls_ca_file is not None:
            read_certificates(CA, self.tls_ca_file)
        if certificate is not None and key is not None:
            read_certificates(CERTIFICATE, certificate)
            load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, KEY, key)
        elif certificate is not None:
            raise FileError(f"--{CERTIFICATE}: {certificate}: expected --{KEY} beside it")
        elif key is not None:
            raise FileError(f"--{KEY}: {key}: expected --{CERTIFICATE} beside it")

    def _check_schemes(self, urls: tuple[str, ...]) -> None:
        given = {TLS: self.tls, CA: self.tls_ca_file, CERTIFICATE: self.tls_certificate_file}
        option = next((name for name, value in given.items() if value), None)
        if option is not None and any(url.lower().startswith("http://") for url in urls):
            raise FileError(f"--{option}: given beside an address with http://, expected https://")
