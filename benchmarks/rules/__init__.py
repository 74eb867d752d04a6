"""Counts translations of the included models that break a rule of placeholders, terms or messages."""
