"""The systems that benchmarks compare, all with the weights of one model.

`translating` is the interface of a measured translator, `compared_model` writes the model in every format. Ours:
`engine_system` and `native_engine`. Others: `ctranslate2_system`,
`pytorch_system`, and `peer_system` (Bergamot and Marian), whose models `marian_system` makes.
"""
