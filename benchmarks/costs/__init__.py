"""What `dragoman translate` (`command`) and 8-bit products (`kernels`) cost: `python -m benchmarks.costs.NAME`."""
