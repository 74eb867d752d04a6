"""Measurements: open-loop load on a server, and exported graphs beside systems that others made."""
