"""Worked examples, which use the packages as a reader would. `attention` draws attention maps of models."""
