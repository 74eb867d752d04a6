"""Measures translation quality: the command `dragoman evaluate`.

`system` is the interface of what is measured. `run_system` translates with PyTorch, `service_systems` with a bundle
or a running server; `systems` opens the one that an argument names, or a file of translations. `command` compares it
with a baseline and prints BLEU, chrF and the significance of their difference.
"""
