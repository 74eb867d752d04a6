"""Parallel text: reading, cleaning, tokenization and batches."""
