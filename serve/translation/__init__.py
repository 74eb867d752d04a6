"""Turns requests into responses: limits, sentences, tokens, submission and results."""
