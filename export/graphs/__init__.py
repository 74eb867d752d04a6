"""ONNX graphs of a bundle: PyTorch modules, operators and precisions."""
