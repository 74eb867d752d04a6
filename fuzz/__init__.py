"""Fuzz harnesses of the readers of foreign bytes; not part of the wheel.

Each harness is a function `check` of bytes, which raises an exception if a rule of the reader is broken; that of the
native engine is C++. `corpus` holds inputs by harness: examples of each format, and all findings. `run.sh` runs them.
"""
