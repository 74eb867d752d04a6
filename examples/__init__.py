"""Worked examples, which use the packages as a reader would. `attention` is a report on kinds of attention."""
