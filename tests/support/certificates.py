"""Certificates for tests: an authority, a server and its clients, as files and as client credentials."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import trustme


@dataclass
class Authority:
    """A certificate authority and the folder of its files."""

    folder: Path
    ca: trustme.CA = field(default_factory=trustme.CA)

    @property
    def file(self) -> Path:
        """The certificate of the authority, in PEM."""
        path = self.folder / "ca.pem"
        self.ca.cert_pem.write_to_path(path)
        return path

    def issue(self, name: str, *hosts: str) -> dict[str, Path]:
        """Writes a certificate and its key, and returns both paths in this order; overwrites files of the same name."""
        issued = self.ca.issue_cert(*(hosts or ("127.0.0.1", "localhost")))
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        issued.private_key_pem.write_to_path(key)
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return {"certificate": certificate, "key": key}

    def settings(self, name: str = "server") -> dict[str, Any]:
        files = self.issue(name)
        return {"tls_certificate_file": files["certificate"], "tls_key_file": files["key"]}

    def credentials(self, client: dict[str, Path] | None = None) -> grpc.ChannelCredentials:
        """Returns gRPC credentials that trust the authority, with or without a client certificate."""
        own = [] if client is None else [client["key"].read_bytes(), client["certificate"].read_bytes()]
        return grpc.ssl_channel_credentials(self.ca.cert_pem.bytes(), *own)

    def context(self, client: dict[str, Path] | None = None) -> ssl.SSLContext:
        """Returns an HTTP context that trusts the authority, with or without a client certificate."""
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if client is not None:
            context.load_cert_chain(client["certificate"], client["key"])
        return context
