"""Parses what clients send in processes with limits, so that hostile input stops and bloats no server.

frames    how arguments and results travel: JSON and bytes, never pickles
worker    a process that calls parsers within limits: no secrets, no files, limits of the kernel
template  the process that forks the workers, ends them and reports how they ended
host      starts the template again if it ends; one process of the service owns it
sandbox   calls a parser from the event loop
"""
