"""What other programs speak to: gRPC and REST, from bytes to requests and from answers to bytes."""
