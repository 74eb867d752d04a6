"""Proves that a bundle translates as its PyTorch model."""
