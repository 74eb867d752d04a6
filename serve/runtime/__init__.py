"""Runs a bundle's graphs with ONNX Runtime, and hides the device from the engines.

`model` is what an engine sees. `native` runs native graphs in memory of `host`; `device` runs on GPUs, which `driver`
finds. `sessions` opens graphs, `placement` decides device, engines and slots, `attention` reads the attention of any
layer and head. Only `onnx_runtime` imports ONNX Runtime.
"""
