"""Plans, rounds, processes and reports of benchmarks."""
