"""Processes, rounds and statistics of benchmarks."""
