"""Runs a bundle's graphs with ONNX Runtime."""
