"""Describes a bundle: the command `dragoman inspect`.

`figures` collects sizes and memory and formats them, and `processor` reports which kernels compute on this machine.
"""
