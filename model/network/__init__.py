"""The Transformer, its recurrent ancestors, and their layers.

`translation_model` is the interface of every architecture: what training, search and export need. `transformer`
implements it with `attention` and `layers`, `recurrent` with `alignment`, the attention of recurrent decoders.
`ensemble` averages the probabilities of several models.
"""
