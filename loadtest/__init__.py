"""Measurements: the open-loop load generator and its report."""
