"""gRPC and REST interfaces."""
