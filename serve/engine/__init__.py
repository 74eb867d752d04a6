"""Continuous batching: running rows, prefill, token selection, and the engine thread that steps them."""
