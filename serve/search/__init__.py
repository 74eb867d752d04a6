"""Search in NumPy: pure functions of scores, without models and errors of the service.

`options` are those of a sequence. `constraints` changes logits, `sampling` chooses a token, `beam` makes one step of
beam search over `live` hypotheses, `patience` ends it, and `hypothesis` is a finished translation with its score.
"""
