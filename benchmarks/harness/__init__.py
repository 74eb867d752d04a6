"""Processes, rounds and spread of benchmarks."""
