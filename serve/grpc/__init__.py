"""The gRPC interface: the translation service, health checks and reflection.

`api` has the methods, `many` the stream of requests, `messages` and `answers` read and write messages with
`message_mapper`. `guard` checks each call before its message is read, with `waits`, `unread`, `connections` and `pace`
as its bounds. `call` records a call and maps its errors. `server` accepts calls, `server_call` is one of them, `events`
brings what gRPC's core has done; `options` are those of the core. `service` is what further services must offer.
"""
