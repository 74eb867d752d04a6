"""How long a stream waits for a client that is there and reads nothing, while it keeps a model and its answer.

Called by the streams of all interfaces.
"""

import asyncio
from collections.abc import Awaitable

from serve.errors import CancelledError

# As long as proxies wait between two writes (nginx, send_timeout).
SEND_TIMEOUT_SECONDS = 60.0


async def send_in_time(sending: Awaitable[None]) -> None:
    """Waits for a write to end.

    Raises:
        CancelledError: if it does not.
    """
    try:
        async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
            await sending
    except TimeoutError:
        raise CancelledError("the client reads nothing") from None
