"""Fault injection and endurance under load."""
