"""The Transformer and its layers.

`transformer` has the model, with `attention` and `layers`. `ensemble` averages the probabilities of several models.
"""
