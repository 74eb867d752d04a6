"""Continuous batching: decodes many sequences together, one token of each at every step.

`engines` builds the engines of a model and reports whether they are ready. Those in Python are here: `engine` is the
thread that steps, `running` a sequence with its hypotheses and the batches of new ones, and `selection` chooses tokens.
`native` has those in C++.
"""
