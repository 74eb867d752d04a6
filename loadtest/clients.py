"""The clients of every protocol that a load uses, behind one: each request goes to that of its protocol.

Called by the processes that generate load.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from loadtest.client import Answer, Client
from loadtest.grpc_clients import GrpcClient, GrpcStreamClient, open_stubs
from loadtest.grpc_many_client import GrpcManyClient
from loadtest.request import LoadRequest, Protocol
from loadtest.rest_clients import RestClient, RestStreamClient, open_session
from serve.clients.channel import DEFAULTS, ClientSettings


@dataclass(frozen=True, slots=True)
class Targets:
    """Where the server is, and what it asks of clients.

    Attributes:
        grpc: host and port of the gRPC interface.
        rest: base URL of the REST interface.
        connections: of gRPC; REST opens as many as there are requests in flight.
        security: TLS and the key, of both interfaces; nothing else of it is heeded.
        balanced: whether gRPC takes turns among several addresses, as the published service config says.
        retries: whether gRPC tries again, as it says; a request still has one outcome, its last.
    """

    grpc: str
    rest: str
    connections: int = 2
    security: ClientSettings = DEFAULTS
    balanced: bool = False
    retries: bool = False

    @property
    def channels(self) -> ClientSettings:
        """How channels of gRPC behave, beside their security."""
        return replace(self.security, balanced=self.balanced, retries=self.retries)


class ClientOfAll:
    """Sends each request with the client of its protocol."""

    def __init__(self, clients: Mapping[Protocol, Client]) -> None:
        self._clients = clients

    async def send(self, request: LoadRequest) -> Answer:
        """Returns what became of it."""
        return await self._clients[request.protocol].send(request)


@asynccontextmanager
async def open_clients(targets: Targets, protocols: Collection[Protocol]) -> AsyncIterator[ClientOfAll]:
    """Opens the connections of some protocols and closes them."""
    clients: dict[Protocol, Client] = {}
    async with AsyncExitStack() as stack:
        if not {"grpc", "grpc-stream", "grpc-many"}.isdisjoint(protocols):
            stubs = await stack.enter_async_context(open_stubs(targets.grpc, targets.connections, targets.channels))
            metadata = targets.security.metadata
            many = GrpcManyClient(stubs, metadata)
            stack.push_async_callback(many.close)
            clients |= {
                "grpc": GrpcClient(stubs, metadata),
                "grpc-stream": GrpcStreamClient(stubs, metadata),
                "grpc-many": many,
            }
        if not {"rest", "rest-stream"}.isdisjoint(protocols):
            session = await stack.enter_async_context(open_session(targets.rest, targets.security))
            clients |= {"rest": RestClient(session), "rest-stream": RestStreamClient(session)}
        yield ClientOfAll(clients)
