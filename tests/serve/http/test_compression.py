"""Answers are compressed only for clients that accept it (RFC 9110, section 12.5.3)."""

import pytest
from starlette.datastructures import Headers

from dragoman.serve.http.compression import COMPRESSED_FROM_BYTES, compressed_from, may_be_plain

LARGE = COMPRESSED_FROM_BYTES


@pytest.mark.parametrize(
    ("accepted", "smallest"),
    [
        *((plain, None) for plain in ([], [""], ["br, deflate"], ["gzip;q=0"], ["gzip; q=0.000, *"], ["*;q=0"])),
        *((plain, None) for plain in (["identity;q=0"], ["gzipped, ungzip"], ["gzip;q=high, gzip;x=1"])),
        *((gzip, LARGE) for gzip in (["gzip"], ["GZip"], ["x-gzip"], ["br", "gzip;q=0.1"], ["*"])),
        (["gzip;q=0.5, identity;q=0.6"], None),
        (["gzip;q=0.6, identity;q=0.5"], LARGE),
        (["gzip, identity, *;q=0"], LARGE),
        *((only, 1) for only in (["gzip, *;q=0"], ["gzip, identity;q=0"])),
    ],
)
def test_gzip_follows_the_weights_of_the_client(accepted: list[str], smallest: int | None) -> None:
    headers = Headers(raw=[(b"accept-encoding", item.encode()) for item in accepted])
    assert compressed_from(headers) == smallest
    assert smallest != 1 or not may_be_plain(headers)
