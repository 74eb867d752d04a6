"""Exports a trained model to a bundle, and verifies, evaluates and inspects bundles.

`command` reads the options, `origin` and `imports` the model, `graphs` writes its ONNX graphs, and `make_bundle` adds
tokenizer, golden sentences and manifest. `verify` compares a bundle with its model, `evaluate` measures translations,
`inspect` describes files and memory, and `align` and `alignment` use the cross-attention.
`further` begins a training with an imported model, and compares its result. `shortlist` makes lists of likely target
tokens, and `shortlist_command` measures them. A bundle is all that a server gets: `serve` imports nothing from here.
"""
