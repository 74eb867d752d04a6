"""Verifies that a bundle translates like its PyTorch model: the command `dragoman verify`.

`checks` lists the checks. Each compares two sides behind the interfaces of `stepper`: `reference` is the PyTorch
model, rounded like the graphs, and `sync_engine` the engine of the service, stepped in the calling thread. `original`
compares an imported bundle with the library of its checkpoint.
"""
