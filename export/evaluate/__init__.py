"""Measures translation quality."""
