"""The gRPC methods that Ray Serve's proxy forwards to replicas, as bytes.

The replica parses them, so that invalid bytes get the usual response and count as usual. Ray Serve's configuration
names `dragoman.serve.ray_serve.proxy_methods.add_translation_service`, which the proxy imports.
"""

from typing import Any

import grpc

from dragoman.protos.translation_pb2 import DESCRIPTOR

SERVICE = DESCRIPTOR.services_by_name["TranslationService"]
# No streams of requests: their clients wait for metadata of the server, which the proxy sends with the first response.
METHODS = {name: method for name, method in SERVICE.methods_by_name.items() if not method.client_streaming}


def add_translation_service(servicer: Any, server: Any) -> None:
    """Adds the methods to the server of the proxy, which replaces each handler by its own route to a replica."""
    handlers: dict[str, Any] = {
        name: (
            grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        )(getattr(servicer, name))
        for name, method in METHODS.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),))
