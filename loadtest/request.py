"""A request of a load before it is sent: what it asks, over which protocol, and when its client gives up.

Drawn by `loadtest.plan`, sent by the clients.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Protocol = Literal["grpc", "grpc-stream", "grpc-many", "rest", "rest-stream"]


@dataclass(frozen=True, slots=True)
class Languages:
    """What is asked of a server that translates in many directions, as ISO 639-1 codes; the names are the contract's.

    A server with a single direction takes both to be empty.
    """

    source_language: str = ""
    target_language: str = ""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A request.

    Attributes:
        texts: what is to be translated.
        protocol: how it travels.
        kind: what it is called in reports.
        languages: from which into which.
        options: how is searched, by the names of the contract.
        timeout_seconds: how long it waits for its answer; the server is told.
        cancel_after_seconds: when its client goes away without waiting; None: it waits.
    """

    texts: tuple[str, ...]
    protocol: Protocol = "grpc"
    kind: str = "requests"
    languages: Languages = Languages()
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout_seconds: float = 10.0
    cancel_after_seconds: float | None = None
