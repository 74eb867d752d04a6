"""The translation service: from sockets to the engines, and what clients of it need. Imports no torch.

`app` builds the service by `composition` and handles signals; `service` is its life from the first open port to the
last closed one, and `worker` one of several processes. `settings` has every setting, `errors` every failure of a
request. A request goes through `http` or `grpc`, `edge`, `rest` or `compat`, `registry`, `translation`, `scheduler`
and `engine`; `docs/architecture.md` draws this way and lists the layers.
"""
