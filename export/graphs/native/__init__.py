"""Graphs of one operator each, `dragoman::Encode`, `Step` and `Choose`, with bodies of standard operators.

The library of native kernels computes the operators. Without it, ONNX Runtime runs their bodies: `encode`, `step` and
`choose`, written with `body` from `layers`, `attention`, `distances`, `ssru` and `cache`. `weights` and `layout` put
weights into the order that the kernels read, and `models` joins graph, body and weights.
"""
