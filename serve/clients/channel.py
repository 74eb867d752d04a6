"""From what a client is told to a gRPC channel: TLS, the key, retries, and how to notice that a server is gone.

Used by both translation clients; those over REST take TLS, key and time from here, too.

How gRPC itself behaves for a client: retries, which wait as the server says, and the choice among replicas.

The JSON of `service_config` works for clients of any language (`docs/clients.md`). Called by `serve.clients.channel`.
"""

import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

SERVICE = "dragoman.v1.TranslationService"


def service_config(*, retries: bool = True, balanced: bool = False, wait_for_ready: bool = False) -> dict[str, Any]:
    """Returns the service config of a channel (gRFC A2).

    Args:
        retries: whether what a later try can mend is tried again. Waits are up to 0.1, 0.3, 0.9 and 2 seconds, or what
            the server's pushback says (gRFC A6).
        balanced: whether calls take turns among all addresses of a name, those left out whose health says no (gRFC
            A17): servers that warm up or shut down.
        wait_for_ready: whether calls wait for a connection up to their deadline, where they would fail at once.
    """
    # A stream of requests is more than gRPC can begin again; its client sends again what has no answer.
    many = {"name": [{"service": SERVICE, "method": "TranslateMany"}], "waitForReady": wait_for_ready}
    method: dict[str, Any] = {"name": [{"service": SERVICE}], "waitForReady": wait_for_ready}
    if retries:
        method["retryPolicy"] = {
            "maxAttempts": 5,
            "initialBackoff": "0.1s",
            "maxBackoff": "2s",
            "backoffMultiplier": 3,
            "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"],
        }
    config: dict[str, Any] = {"methodConfig": [many, method]}
    if balanced:
        config["loadBalancingConfig"] = [{"round_robin": {}}]
        config["healthCheckConfig"] = {"serviceName": SERVICE}
    return config


# Retries are given up for a request larger than this, which no server takes by default.
RETRIED_BYTES = 4 << 20
KEEPALIVE_SECONDS = 30
KEEPALIVE_TIMEOUT_SECONDS = 10

Options = list[tuple[str, str | int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How a client reaches servers.

    Attributes:
        timeout_seconds: how long a call may take that says nothing else, retries included.
        api_key: what the server asks clients for; None: nothing.
        tls: whether to encrypt; implied by each of the files.
        ca_file: PEM file of the authorities that may vouch for the server; None: those of the system.
        certificate_file, key_file: PEM files of this client's certificate, for a server that asks for one.
        server_name: the name in the server's certificate, if it is not that of the target; known to gRPC alone.
        retries: whether what a later try can mend is tried again, as the server says.
        balanced: whether calls take turns among all replicas that the target's name leads to.
        wait_for_ready: whether calls wait for a server that is not there, up to their deadline.
        max_answer_bytes: the largest answer that is read.
    """

    timeout_seconds: float = 30.0
    api_key: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None
    retries: bool = True
    balanced: bool = False
    wait_for_ready: bool = False
    max_answer_bytes: int = 64 << 20

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every call: over gRPC as metadata, over REST as headers."""
        return () if self.api_key is None else (("authorization", f"Bearer {self.api_key}"),)

    @property
    def encrypted(self) -> bool:
        """Whether TLS is spoken."""
        return self.tls or any((self.ca_file, self.certificate_file, self.key_file))

    @property
    def credentials(self) -> grpc.ChannelCredentials | None:
        """What gRPC encrypts connections with; None: nothing.

        Raises:
            OSError: if a file cannot be read.
        """
        if not self.encrypted:
            return None
        files = (self.ca_file, self.key_file, self.certificate_file)
        return grpc.ssl_channel_credentials(*(None if path is None else path.read_bytes() for path in files))

    def ssl_context(self) -> ssl.SSLContext | None:
        """Returns what connections of REST are encrypted with; None: nothing.

        Raises:
            OSError: if a file cannot be read, or holds something else.
        """
        if not self.encrypted:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate_file is not None:
            # The empty password keeps OpenSSL from asking for one on the terminal.
            context.load_cert_chain(self.certificate_file, self.key_file, password="")
        return context

    @property
    def options(self) -> Options:
        """What gRPC is told about the channel."""
        config = service_config(retries=self.retries, balanced=self.balanced, wait_for_ready=self.wait_for_ready)
        options: Options = [
            ("grpc.service_config", json.dumps(config)),
            ("grpc.per_rpc_retry_buffer_size", RETRIED_BYTES),
            ("grpc.max_receive_message_length", self.max_answer_bytes),
            ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_SECONDS * 1000),
            ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_SECONDS * 1000),
        ]
        if self.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self.server_name))
        return options


DEFAULTS = ClientSettings()


def open_channel(target: str, settings: ClientSettings, options: Options | None = None) -> grpc.Channel:
    """Returns a channel for calls that block.

    Args:
        target: host and port, or a name with several addresses.
        settings: how servers are reached.
        options: what gRPC is told about the channel, in place of what the settings say.

    Raises:
        OSError: if a file of the settings cannot be read.
    """
    credentials, options = settings.credentials, settings.options if options is None else options
    if credentials is None:
        return grpc.insecure_channel(target, options)
    return grpc.secure_channel(target, credentials, options)


def open_async_channel(target: str, settings: ClientSettings, options: Options | None = None) -> grpc.aio.Channel:
    """Returns a channel for the running event loop; arguments as those of `open_channel`.

    Raises:
        OSError: if a file of the settings cannot be read.
    """
    credentials, options = settings.credentials, settings.options if options is None else options
    if credentials is None:
        return grpc.aio.insecure_channel(target, options)
    return grpc.aio.secure_channel(target, credentials, options)
