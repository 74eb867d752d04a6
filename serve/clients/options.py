"""Connection options of commands: TLS and API key.

Invalid options fail before the first request, with the name of the option. Messages never contain the key. Each command
has its own prefix of environment variables.
"""

import re
import ssl
from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from dragoman.model.errors import UsageError
from dragoman.serve.clients.channel import DEFAULTS, ClientSettings
from dragoman.serve.host.files import load_key, read_certificates

API_KEY, TLS = "api-key", "tls"
CA, CERTIFICATE, KEY = "tls-ca-file", "tls-certificate-file", "tls-key-file"
# Characters of a header value.
_SENDABLE = re.compile(r"[!-~]+")
_MAX_PORT = 65_535


def check_address(option: str, address: str) -> None:
    """Checks the address of a gRPC port, unless it is a URI, such as `dns:///HOST:PORT` or `unix:PATH`.

    Raises:
        UsageError: if it has another form; gRPC would connect to a port that the user did not name.
    """
    if "/" in address or address.startswith("unix"):
        return
    match = re.fullmatch(r"\S+:([0-9]{1,5})", address, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= _MAX_PORT:
        problem = f"{address[:64]!r}, expected HOST:PORT with a number as port, 1 to {_MAX_PORT}"
        raise UsageError(f"--{option}: {problem}")


class ConnectionOptions(BaseSettings):
    """Options for servers with TLS or API keys."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    HELP_GROUPS: ClassVar[dict[str, str]] = {"api_key": "server connection"}

    api_key: SecretStr | None = Field(
        None, description="API key for the server; better set it as DRAGOMAN_<COMMAND>_API_KEY."
    )
    tls: bool = Field(False, description="Use TLS; each of the TLS files implies it.")
    tls_ca_file: Path | None = Field(
        None, description="PEM file of trusted certificate authorities. Default: those of the system."
    )
    tls_certificate_file: Path | None = Field(None, description="PEM file of the client certificate, for mutual TLS.")
    tls_key_file: Path | None = Field(None, description="PEM file of the client certificate's key.")

    def connection(self, *urls: str, timeout_seconds: float = DEFAULTS.timeout_seconds) -> ClientSettings:
        """Returns the settings for connections.

        Args:
            urls: addresses of the servers; those with a scheme are checked against the TLS options.
            timeout_seconds: timeout of a call, retries included.

        Raises UsageError if an option contradicts another one or an address, FileError if a file is invalid.
        """
        # The message of a pydantic check would contain the key.
        if self.api_key is not None and not _SENDABLE.fullmatch(self.api_key.get_secret_value()):
            raise UsageError(f"--{API_KEY}: expected visible ASCII characters without white space")
        self._check_files()
        given = {TLS: self.tls, CA: self.tls_ca_file, CERTIFICATE: self.tls_certificate_file}
        option = next((name for name, value in given.items() if value), None)
        if option is not None and any(url.lower().startswith("http://") for url in urls):
            raise UsageError(f"--{option}: expected an address with https://, got http://")
        return ClientSettings(
            timeout_seconds=timeout_seconds,
            api_key=None if self.api_key is None else self.api_key.get_secret_value(),
            tls=self.tls,
            ca_file=self.tls_ca_file,
            certificate_file=self.tls_certificate_file,
            key_file=self.tls_key_file,
        )

    def _check_files(self) -> None:
        certificate, key = self.tls_certificate_file, self.tls_key_file
        if self.tls_ca_file is not None:
            read_certificates(CA, self.tls_ca_file)
        if certificate is not None and key is not None:
            read_certificates(CERTIFICATE, certificate)
            load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, KEY, key)
        elif certificate is not None:
            raise UsageError(f"--{CERTIFICATE}: {certificate}: expected --{KEY} too")
        elif key is not None:
            raise UsageError(f"--{KEY}: {key}: expected --{CERTIFICATE} too")
