"""The settings of connections: how long they last, who may open one, and how they are encrypted.

A part of `serve.settings`; read by `serve.app` alone.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class ConnectionSettings(BaseModel):
    """What is asked of connections, and of those who open them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tls_certificate_file: Path | None = Field(
        None,
        description="PEM file with the server's certificate and those between it and its root. With it, both ports "
        "speak TLS only. Read again when it changes. Default: no TLS.",
    )
    tls_key_file: Path | None = Field(None, description="PEM file with the key of the certificate, not encrypted.")
    tls_client_ca_file: Path | None = Field(
        None,
        description="PEM file with the authorities whose clients are let in, by the certificates that they show "
        "(mutual TLS). Probes over REST need none. Default: clients need no certificate.",
    )
    api_keys: SecretStr | None = Field(
        None,
        min_length=1,
        description="Keys of clients, separated by white space; who has none gets no translation. Best in the "
        "environment (DRAGOMAN_API_KEYS) or in a file. Default: nobody needs a key.",
    )
    api_keys_file: Path | None = Field(
        None, description="File with one key a line; lines that begin with # say nothing. Read again when it changes."
    )
    open_metrics: bool = Field(True, description="Whether /metrics may be read without a key or a certificate.")
    grpc_keepalive_seconds: float = Field(
        60.0, gt=0, allow_inf_nan=False, description="A gRPC connection on which nothing came for so long is pinged."
    )
    grpc_keepalive_timeout_seconds: float = Field(
        20.0, gt=0, allow_inf_nan=False, description="A connection that does not answer a ping for so long is closed."
    )
    grpc_min_ping_interval_seconds: float = Field(
        10.0,
        ge=0,
        allow_inf_nan=False,
        description="Clients that ping more often than that, again and again, are sent away.",
    )
    grpc_max_connection_age_seconds: float = Field(
        300.0,
        gt=0,
        description="After about so long, a gRPC connection takes no further calls: its client opens another one, and "
        "finds new replicas by that. A stream of requests is read for so long. inf: never, and for ever.",
    )
    grpc_max_connection_age_grace_seconds: float = Field(
        360.0,
        gt=0,
        description="How long the calls of such a connection may still take: longer than a stream of requests is read, "
        "and than any deadline of clients besides.",
    )
    grpc_max_calls: int | None = Field(
        None, ge=1, description="Calls at once on one gRPC connection; further ones wait in the client. Default: any."
    )
