"""Runs graphs on the CUDA execution provider; state and logits stay in device memory.

`device` has memory and runs, `driver` the GPUs and their metrics, `kv_cache` the state of an engine, and `runtime` runs
the graphs of a bundle. `device_graphs` are small graphs for copies, choices and sizes of tensors.
"""
