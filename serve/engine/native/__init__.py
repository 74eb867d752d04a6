"""Native engines: the loop in C++ as requests and the registry see it.

`model` opens a bundle for the loop. `scheduler` hands sequences over and brings results back, and `records` is the
layout of both in bytes. The loop itself is in `serve/native/src/loop`.
"""
