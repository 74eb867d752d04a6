"""The Transformer and its layers.

`translation_model` is the interface of a model: what training, search and export need. `transformer` implements it with
`attention` and `layers`. `ensemble` averages the probabilities of several models.
"""
