"""Clients of a running server, and translation in this process.

`aio` is the gRPC client for asyncio, `client` the blocking one, `many` their streams of requests, `rest` the REST
client, and `local` needs no server. `messages` has arguments and messages, `errors` one class per reaction of the
caller, `channel` and `options` the connection. `translate` and `translate_files` are `dragoman translate`.
"""
