"""The methods of the gRPC service that Ray Serve's proxy lets through to replicas, as bytes.

A replica parses them, so that bytes which are no message are answered and counted as everywhere. The proxy imports this
module, by the name that stands in Ray Serve's configuration: `serve.ray_serve.proxy_methods.add_translation_service`.
"""

from typing import Any

import grpc

from protos.translation_pb2 import DESCRIPTOR

SERVICE = DESCRIPTOR.services_by_name["TranslationService"]
# A stream of requests waits for the server's metadata before it sends any, and the proxy sends none before an answer.
METHODS = {name: method for name, method in SERVICE.methods_by_name.items() if not method.client_streaming}


def add_translation_service(servicer: Any, server: Any) -> None:
    """Adds the methods to the proxy's server, which puts its own way to a replica in the place of each.

    Args:
        servicer: has every method.
        server: of the proxy.
    """
    handlers: dict[str, Any] = {
        name: (
            grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        )(getattr(servicer, name))
        for name, method in METHODS.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),))
