"""The translation service: engine, gRPC and REST interfaces, metrics and lifecycle. Imports no torch."""
