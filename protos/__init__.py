"""The gRPC contract of the service and the code generated from it."""
