"""Describes a bundle."""
