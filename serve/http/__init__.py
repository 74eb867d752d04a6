"""HTTP/1.1 between sockets and an ASGI application. Contains no translation: a reader of the service may skip it.

`server` accepts connections, `connection` serves one with its `clock`, `parser` reads requests, `pipeline` orders them,
`exchange` is a request and its answer as the application sees them, `output` sends answers, `tls` encrypts. `limits`
bounds all connections together and divides the work among them. `compression` and `kept_bytes` are about bodies,
and `problem` writes the answers to invalid requests.
"""
