"""Unpacks a file of gzip while it arrives, up to the stated size of its content."""

import zlib
from typing import BinaryIO

# zlib then reads a stream with the header and the checksum of gzip.
GZIP_FORMAT = 31


class TooLongError(Exception):
    """The content is longer than allowed."""


class Unpacker:
    """Writes the content of a file of gzip, which comes in pieces, to a file."""

    def __init__(self, file: BinaryIO, limit_bytes: int) -> None:
        self._file = file
        self._limit_bytes = limit_bytes
        self._stream = zlib.decompressobj(GZIP_FORMAT)

    @property
    def is_complete(self) -> bool:
        """Whether the content has its end."""
        return self._stream.eof

    def add(self, piece: bytes) -> None:
        """Unpacks a piece; raises zlib.error, or TooLongError after one byte more than the limit."""
        while piece:
            if self._stream.eof:  # A file may have several streams, and zeros after them.
                if not (piece := piece.lstrip(b"\0")):
                    return
                self._stream = zlib.decompressobj(GZIP_FORMAT)
            self._file.write(self._stream.decompress(piece, self._limit_bytes + 1 - self._file.tell()))
            if self._file.tell() > self._limit_bytes:
                raise TooLongError
            piece = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
