"""An API key: a public id, a secret of which only the digest is kept, and limits."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from dragoman.serve.keys.limits import KeyLimits

PREFIX = "dragoman"
_ID_BYTES = 6
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Key:
    """A key without its secret.

    Attributes:
        id: of its counts; never given to another key.
        name: for people, logs and metrics; empty: it has none.
        digest: SHA-256 of the whole key.
        created_seconds, revoked_seconds: since 1970; None: not known, or not revoked.
    """

    id: str
    name: str
    digest: bytes
    limits: KeyLimits = field(default_factory=KeyLimits)
    created_seconds: int | None = None
    revoked_seconds: int | None = None

    def matches(self, digest: bytes) -> bool:
        """Returns whether a digest is that of the key; the time does not depend on the answer."""
        return hmac.compare_digest(self.digest, digest)


def digest_of(key: bytes) -> bytes:
    """Returns the digest of a key. Keys are random and long, so that a fast hash is enough."""
    return hashlib.sha256(key).digest()


def new_secret() -> tuple[str, str]:
    """Returns the id and the text of a new key, as in `dragoman_0a1b2c3d4e5f_...`."""
    key_id = secrets.token_hex(_ID_BYTES)
    return key_id, f"{PREFIX}_{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"


def id_of(key: str) -> str | None:
    """Returns the id in the text of a key; None: it has another form."""
    prefix, _, rest = key.partition("_")
    key_id, separator, _ = rest.partition("_")
    return key_id if prefix == PREFIX and separator else None
