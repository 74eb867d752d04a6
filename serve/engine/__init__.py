"""Continuous batching: decodes many sequences together, one token of each at every step.

`engines` builds the engines of a model. Those in Python are here: `engine` is the thread that steps, `prefill` encodes
new sequences, `running` is a sequence with its hypotheses, and `selection` chooses tokens. `native` has those in C++.
`readiness` reports whether the engines of a model are healthy.
"""
