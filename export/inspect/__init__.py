"""Describes a bundle: the command `dragoman inspect`. Needs no PyTorch.

`graph` reads stored graphs, `figures` collects sizes, dimensions and memory, and `processor` reports which kernels
compute on this machine. `command` prints them as text or JSON.
"""
