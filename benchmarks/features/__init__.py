"""Benchmarks of single features: `python -m benchmarks.features.terms BUNDLE`. Each is a program of its own."""
