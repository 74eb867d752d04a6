"""The translation service: engine, gRPC and REST interfaces, metrics and life cycle. Holds no torch."""
