"""What a bundle computes with: PyTorch modules whose forward is an ONNX signature, their operators and precisions."""
