"""The Transformer in PyTorch: architecture, tokenizer, data, training and evaluation.

`data` reads sentence pairs, `tokenizer` cuts them into pieces, `network` computes, `training` trains, and a run
folder (`run`) keeps the result. `search` translates with a model, `scoring` measures translations, `alignment` has
links between words, `attention_alignment` makes them with a model. `weights` is a Transformer as NumPy arrays, for
imports and graphs. `tokenizer`, `errors` and the text tables import no torch: the service uses them.
"""
