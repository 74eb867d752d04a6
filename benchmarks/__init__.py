"""Benchmarks against other systems; not part of the wheel."""
