"""Programs that call a running server without its client library, and one that serves with Ray Serve.

`python -m examples.NAME` calls a server; `serve run deploy/ray/dragoman.yaml` serves `ray_serve`.
"""
