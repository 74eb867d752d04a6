"""Compares kinds of attention: the command `dragoman attention`.

`maps` draws the attention of a translation by words, `layers` measures the costs of layers of Vaswani et al. 2017,
Table 1, and `quality` compares trained models. `command` writes one report of all.
"""
