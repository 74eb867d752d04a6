"""Clients of a running server, and `dragoman translate`.

`aio` is the gRPC client for asyncio, `client` the blocking one, `many` their streams of requests, and `rest` the REST
client. `messages` has arguments and messages, `errors` one class per reaction of the caller, `channel` and `options`
the connection. `translate`, `lines` and `translate_files` are `dragoman translate`.
"""
