"""Translation with PyTorch, greedy or with a beam: slow, plain, and the reference of every graph."""
