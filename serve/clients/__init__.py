"""Clients of a running server, and `dragoman translate`.

`aio` has the gRPC client for asyncio, `client` the blocking one, `many` their streams of requests, and `rest` the REST
client. `messages` has arguments and messages, `errors` one class per remedy, `channel` and `options` the connection.
`translate`, `lines`, `file_plan` and `translate_files` implement `dragoman translate`.
"""
