"""How translations are searched for: options, hypotheses, and what is done with the logits of a step, in NumPy."""
