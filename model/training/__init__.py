"""Training: the step, its loss, the trainer, and the command `dragoman train`."""
