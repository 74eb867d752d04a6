"""`dragoman train` and `dragoman throughput`: a training step, what it minimizes, and what watches it."""
