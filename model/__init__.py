"""The Transformer in PyTorch: architecture, tokenizer, data, training and evaluation."""
