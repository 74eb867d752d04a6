"""Compares kinds of attention: maps, costs, quality."""
