"""gRPC channels of clients: TLS, API key, retries, load balancing and keepalive.

The JSON of `service_config` works for gRPC clients in any language (`docs/clients.md`).
"""

import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import grpc.aio

SERVICE = "dragoman.v1.TranslationService"


def service_config(*, retries: bool = True, balanced: bool = False, wait_for_ready: bool = False) -> dict[str, Any]:
    """Returns the service config of a channel (gRFC A2).

    Args:
        retries: retry transient errors; the backoff is up to 0.1, 0.3, 0.9 and 2 seconds unless the server sends a
            pushback (gRFC A6).
        balanced: round robin over all addresses of the name, without those that fail health checks (gRFC A17).
        wait_for_ready: wait for a connection until the deadline instead of failing at once.
    """
    # gRPC cannot retry a request stream; the client itself sends unanswered requests again.
    many = {"name": [{"service": SERVICE, "method": "TranslateMany"}], "waitForReady": wait_for_ready}
    method: dict[str, Any] = {"name": [{"service": SERVICE}], "waitForReady": wait_for_ready}
    if retries:
        method["retryPolicy"] = {
            "maxAttempts": 5,
            "initialBackoff": "0.1s",
            "maxBackoff": "2s",
            "backoffMultiplier": 3,
            "retryableStatusCodes": ["CANCELLED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"],
        }
    config: dict[str, Any] = {"methodConfig": [many, method]}
    if balanced:
        config["loadBalancingConfig"] = [{"round_robin": {}}]
        config["healthCheckConfig"] = {"serviceName": SERVICE}
    return config


# Larger requests are not retried; servers reject them by default.
RETRIED_BYTES = 4 << 20
KEEPALIVE_SECONDS = 30
KEEPALIVE_TIMEOUT_SECONDS = 10

Options = list[tuple[str, str | int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The connection settings of a client.

    Attributes:
        timeout_seconds: default timeout of a call, retries included.
        api_key: API key for the server; None: send no key.
        tls: use TLS; each of the three files implies it.
        ca_file: PEM file of trusted certificate authorities; None: those of the system.
        certificate_file, key_file: PEM files of the client certificate and its key (mutual TLS).
        server_name: expected name in the server's certificate if it differs from the target; gRPC only.
        retries: retry transient errors, with the server's pushback.
        balanced: distribute calls over all replicas behind the target's name.
        wait_for_ready: wait for an unreachable server until the deadline.
        max_answer_bytes: size limit of a response.
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
        """The headers of every call: gRPC metadata or HTTP headers."""
        return () if self.api_key is None else (("authorization", f"Bearer {self.api_key}"),)

    @property
    def encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self.tls or any((self.ca_file, self.certificate_file, self.key_file))

    @property
    def credentials(self) -> "grpc.ChannelCredentials | None":
        """The gRPC credentials; None: no TLS. Raises OSError if a file cannot be read."""
        import grpc  # noqa: PLC0415 - settings need no gRPC

        if not self.encrypted:
            return None
        files = (self.ca_file, self.key_file, self.certificate_file)
        return grpc.ssl_channel_credentials(*(None if path is None else path.read_bytes() for path in files))

    def ssl_context(self) -> ssl.SSLContext | None:
        """Returns the TLS context for REST; None: no TLS. Raises OSError if a file cannot be read or is invalid."""
        if not self.encrypted:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate_file is not None:
            # The empty password prevents OpenSSL from prompting on the terminal.
            context.load_cert_chain(self.certificate_file, self.key_file, password="")
        return context

    @property
    def options(self) -> Options:
        """The gRPC channel options."""
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


def open_async_channel(target: str, settings: ClientSettings, options: Options | None = None) -> "grpc.aio.Channel":
    """Returns a channel for the running event loop.

    Args:
        target: host and port, or a name with several addresses.
        options: gRPC channel options that replace those of the settings.

    Raises OSError if a file of the settings cannot be read.
    """
    import grpc.aio  # noqa: PLC0415

    credentials, options = settings.credentials, settings.options if options is None else options
    if credentials is None:
        return grpc.aio.insecure_channel(target, options)
    return grpc.aio.secure_channel(target, credentials, options)
