"""Runs graphs on the CUDA execution provider with device memory."""
