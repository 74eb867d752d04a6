"""The commands of the service."""
