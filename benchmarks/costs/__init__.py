"""What 8-bit products (`kernels`) cost: `python -m benchmarks.costs.kernels`."""
