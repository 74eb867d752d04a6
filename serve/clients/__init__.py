"""Clients of a running server, and translation in this process."""
