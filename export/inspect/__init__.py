"""Describes a bundle: the command `dragoman inspect`. Needs no PyTorch.

`figures` collects sizes, dimensions and memory, `graph` reads graphs, `native_step` describes native ones,
`shortlist` describes candidates, and `processor` reports which kernels compute on this machine.
`command` prints them as text or JSON.
"""
