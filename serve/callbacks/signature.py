"""Signs call backs by Standard Webhooks 1.0 (https://www.standardwebhooks.com)."""

import base64
import hmac
import re
from collections.abc import Sequence
from pathlib import Path

from dragoman.serve.host.files import FileError, read_file

# At least 24 bytes, as the standard requires.
_SECRET = re.compile(rb"whsec_((?:[A-Za-z0-9+/]{4}){8,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)")


def read_secrets(path: Path | None) -> list[bytes]:
    """Returns the secrets of a file, one per line; raises FileError, without a secret, if one is missing or invalid."""
    if path is None:
        raise FileError("--callback-hosts: expected --callback-secret-file too")
    found = [_SECRET.fullmatch(line) for line in read_file("callback-secret-file", path).split()]
    secrets = [base64.b64decode(secret[1]) for secret in found if secret is not None]
    if not secrets or len(secrets) < len(found):
        raise FileError(f"--callback-secret-file: {path}: expected lines of whsec_ and the base64 of 24 bytes or more")
    return secrets


def signed_headers(secrets: Sequence[bytes], message_id: str, now_seconds: int, body: bytes) -> dict[str, str]:
    """Returns the headers of a message, with a signature per secret over id, Unix time and body."""
    signed = f"{message_id}.{now_seconds}.".encode() + body
    digests = [hmac.digest(secret, signed, "sha256") for secret in secrets]
    signatures = " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return {"webhook-id": message_id, "webhook-timestamp": str(now_seconds), "webhook-signature": signatures}
