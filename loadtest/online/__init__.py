"""`dragoman bench online`: our server beside servers that others would build, under the same open-loop load."""
