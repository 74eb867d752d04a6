"""`dragoman train` and `dragoman throughput`: a training step, what it minimises, and what watches it."""
