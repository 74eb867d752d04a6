"""ONNX graphs of a bundle: PyTorch modules, operators and precisions.

`export_model` chooses by `options` (variant, precision, alignment heads). Graphs on CPUs are written by `native`. Those
on GPUs have states: `transformer` has PyTorch modules with the signature of a graph, and `to_onnx` writes them.
`weightless` has the graph that selects tokens on a GPU. `graph_files` stores equal weights once.
"""
