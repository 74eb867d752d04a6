"""TLS of HTTP connections, between socket and connection.

asyncio's own TLS transport hides what waits in the buffer of the socket below: a client that reads nothing would seem
to have read everything. It also computes all handshakes at once, each for a millisecond.
"""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from functools import partial
from types import MappingProxyType
from typing import cast

from dragoman.serve.http.limits import INPUT_BYTES, HttpLimits, StepQueue

# With these buffer limits, a transport pauses its protocol at any unsent byte and resumes it when all bytes are sent.
# asyncio's TLS pauses from the size of `high` on, a socket beyond it.
ANY_WRITE = MappingProxyType({"high": 0, "low": 0})
ANY_TLS_WRITE = MappingProxyType({"high": 1, "low": 0})


class TlsLayer(SSLProtocol):
    """asyncio's TLS, which also counts the bytes below it, and pauses and resumes its protocol for them."""

    max_size = INPUT_BYTES  # of a read

    def __init__(
        self, protocol: asyncio.BaseProtocol, context: ssl.SSLContext, limits: HttpLimits, steps: StepQueue
    ) -> None:
        loop = asyncio.get_running_loop()
        self._shaken = loop.create_future()
        self._steps = steps
        super().__init__(
            loop,
            protocol,
            context,
            self._shaken,
            server_side=True,
            ssl_handshake_timeout=limits.header_seconds,  # type: ignore[arg-type]  # wrong stub
            ssl_shutdown_timeout=limits.send_seconds,
        )
        self._set_read_buffer_limits(high=INPUT_BYTES)  # type: ignore[attr-defined]  # missing in the stub

    @property
    def unsent_bytes(self) -> int:
        """Encrypted bytes that wait for the client."""
        return self._below.get_write_buffer_size()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins the handshake."""
        self._below = cast("asyncio.Transport", transport)
        self._below.set_write_buffer_limits(**ANY_WRITE)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Ends the connection, and breaks a reference cycle that asyncio leaves to the garbage collector."""
        super().connection_lost(exc)
        self._app_protocol_get_buffer = self._app_protocol_buffer_updated = None

    def buffer_updated(self, nbytes: int) -> None:
        """Takes input; that of the handshake waits for its step."""
        if self._shaken.done():
            super().buffer_updated(nbytes)
        else:
            self._below.pause_reading()
            self._steps.add(partial(self._shake, nbytes))

    def _shake(self, nbytes: int) -> None:
        if not self._below.is_closing():
            self._below.resume_reading()
            super().buffer_updated(nbytes)

    def pause_writing(self) -> None:
        """Waits for the socket."""
        super().pause_writing()
        self._app_protocol.pause_writing()

    def resume_writing(self) -> None:
        """Goes on after the socket has taken everything."""
        super().resume_writing()
        self._app_protocol.resume_writing()

    async def handshake(self) -> None:
        """Waits for the end of the handshake; raises OSError if it fails or takes too long."""
        try:
            await self._shaken
        except BaseException:
            self._below.abort()
            raise
