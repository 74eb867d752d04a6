"""Graphs of one operator each, `dragoman::Encode`, `Step` and `Choose`, with bodies of standard operators."""
