"""Decides which sequences start, and when."""
