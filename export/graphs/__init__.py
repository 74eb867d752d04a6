"""ONNX graphs of a bundle: PyTorch modules, operators and precisions.

`export_model` chooses by `options` (variant, precision, alignment heads). Graphs of Transformers on CPUs are written
by `native`. All others have states: `transformer` and `recurrent` are PyTorch modules with the signature of a graph,
`attention` a part of the former; `to_onnx` writes them. `search` and `device_graphs` run between decoder steps.
`graph_files` stores equal weights once.
"""
