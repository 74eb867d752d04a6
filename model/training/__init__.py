"""Training: the step, its loss, the trainer, and the commands `dragoman train` and `dragoman throughput`."""
