"""Loads, reloads and dispatches to the served models."""
