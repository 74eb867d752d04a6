"""How systems are compared: by turns, each in a process of its own, as medians and ratios."""
