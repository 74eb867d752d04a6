"""The systems that benchmarks compare."""
