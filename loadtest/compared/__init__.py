"""What systems have in common when they are compared: the models, the sentences and the batches."""
