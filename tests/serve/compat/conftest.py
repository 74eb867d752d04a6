"""A service for all tests of a file."""

from tests.support.interfaces import live, open_deepl

__all__ = ["live", "open_deepl"]
