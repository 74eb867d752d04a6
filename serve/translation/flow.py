"""Requests that come one after the other from the same client, and share what one client may have.

Made by whoever reads a stream of requests; `serve.translation.doorway` lets them in, and fair queuing takes a flow for
one request (`serve.engine.flows`).
"""

import asyncio


class Flow:
    """A stream of requests; its identity is what counts.

    Attributes:
        turn: held by the one of its requests that is next to come in.
        inside: how many of them wait for a slot or have one.
    """

    def __init__(self) -> None:
        """Starts without requests."""
        self.turn = asyncio.Lock()
        self.inside = 0

    def leave(self) -> None:
        """Counts one of its requests out."""
        self.inside -= 1
