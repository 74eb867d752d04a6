"""The process and its machine: sockets, files, database, threads and memory."""
