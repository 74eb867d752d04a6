"""HTTP/1.1 between sockets and an ASGI application."""
