"""Answers are compressed only for clients that accept it (RFC 9110, section 12.5.3)."""

import pytest
from starlette.datastructures import Headers

from dragoman.serve.http.compression import COMPRESSED_FROM_BYTES, compressed_from, may_be_plain

LARGE = COMPRESSED_FROM_BYTES


@pytest.mark.parametrize(
    ("accepted", "smallest"),
    [
        ([], None),
        ([""], None),
        (["br, deflate"], None),
        (["gzip"], LARGE),
        (["GZip"], LARGE),
        (["x-gzip"], LARGE),
        (["br", "gzip;q=0.1"], LARGE),
        (["*"], LARGE),
        (["gzip;q=0"], None),
        (["gzip; q=0.000, *"], None),
        (["*;q=0"], None),
        (["gzip;q=0.5, identity;q=0.6"], None),
        (["gzip;q=0.6, identity;q=0.5"], LARGE),
        (["gzip, *;q=0"], 1),
        (["gzip, identity;q=0"], 1),
        (["gzip, identity, *;q=0"], LARGE),
        (["identity;q=0"], None),
        (["gzipped, ungzip"], None),
        (["gzip;q=high, gzip;x=1"], None),
    ],
)
def test_gzip_follows_the_weights_of_the_client(accepted: list[str], smallest: int | None) -> None:
    headers = Headers(raw=[(b"accept-encoding", item.encode()) for item in accepted])
    assert compressed_from(headers) == smallest
    assert smallest != 1 or not may_be_plain(headers)
