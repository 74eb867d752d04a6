"""Parallel text: where it comes from, how it is cleaned, and how it becomes batches."""
