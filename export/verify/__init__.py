"""Verifies that a bundle translates like its PyTorch model."""
