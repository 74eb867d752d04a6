"""A service for all tests of a file."""

from tests.support.interfaces import live

__all__ = ["live"]
