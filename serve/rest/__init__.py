"""The REST interface, and the composition of all routes."""
