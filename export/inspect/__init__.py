"""Describes a bundle: the command `dragoman inspect`. Needs no PyTorch.

`figures` collects sizes, dimensions and memory, `graph` reads graphs with states and `native_step` native ones,
`shortlist` describes candidates, and `processor` reports which kernels compute on this machine.
`command` prints them as text or JSON.
"""
