"""Who is let in: whoever has a key, and over mutual TLS a certificate; with neither asked for, everybody.

Both interfaces ask it before they do anything for a request, except for probes and health. Knows neither protocol.
"""

from serve.api.key_ring import KeyRing
from serve.errors import UnauthorisedError


class Door:
    """What is asked of clients."""

    def __init__(self, keys: KeyRing | None = None, *, certificates: bool = False) -> None:
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
            UnauthorisedError: if it shows no certificate and needs one; a wrong one never makes a connection.
        """
        if self._certificates and not shown:
            raise UnauthorisedError("client certificate: none, expected one of an authority that the server trusts")

    def check_key(self, authorisation: str) -> None:
        """Lets a request in.

        Raises:
            UnauthorisedError: if the value of its header `authorization` holds no key that opens.
        """
        if self._keys is not None and not self._keys.opens(authorisation):
            raise UnauthorisedError("authorization: expected `Bearer` and a key")

    def refresh(self) -> None:
        """Reads the keys again if their file changed."""
        if self._keys is not None:
            self._keys.refresh()
