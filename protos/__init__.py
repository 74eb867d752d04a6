"""The gRPC contract of the service and the code generated from it.

`translation.proto` is the contract of Dragoman, and `inference.proto` that of the Open Inference Protocol. `make
protos` generates the modules `*_pb2` and `*_pb2_grpc`; they are checked in and never edited.
"""
