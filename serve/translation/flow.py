"""Requests that come one after the other from the same client, and share what one client may have.

Made by whoever reads a stream of requests; `serve.translation.doorway` lets them in, and fair queuing takes a flow for
one request (`serve.scheduler.flows`).
"""


class Flow:
    """A stream of requests; its identity is what counts."""
