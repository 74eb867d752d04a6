"""Proves that public models work: downloads, converts and serves one of each kind, and compares it with its own engine.

`python -m benchmarks.real_models` runs it, and needs a network. `models.yaml` has the models, `sentences.tsv` what they
translate. `proof` works through the steps of one model, `bergamot` runs the translator of Firefox.
"""
