"""Benchmarks of single features: `python -m benchmarks.features.held_out BUNDLE TEXT`."""
