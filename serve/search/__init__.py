"""Search in NumPy: options, constraints on logits, token choice, beams and hypotheses."""
