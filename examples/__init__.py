"""Programs that call a running server without its client library; each runs as `python -m examples.NAME`."""
