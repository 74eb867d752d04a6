"""Readers of the formats in which programs keep messages and help: one function per format, bytes to texts by key."""
