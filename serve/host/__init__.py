"""The process and its machine, for all rooms above. Contains nothing of requests.

`system` has CPUs, memory and open files, `threads` threads for calls that block, `event_loop` the event loop.
`process_link` joins processes, `server_process` starts a server as a process. `tcp_sockets` and `client_address` look
at connections. `state` is the database, with its shares; `files` reloads files, `config_file` reads
settings.
"""
