"""Counts translations of the models that ship that break a rule of placeholders, terms or messages.

`python -m benchmarks.rules` runs it. `texts` draws the texts from a seed.
"""
