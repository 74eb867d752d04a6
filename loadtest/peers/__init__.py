"""Systems that others made, run with the same weights as ours."""
