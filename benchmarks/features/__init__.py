"""Benchmarks of single features: `python -m benchmarks.features.markup BUNDLE`. Each is a program of its own."""
