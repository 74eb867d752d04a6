"""The Open Inference Protocol, version 2, over gRPC and REST, as Triton and KServe have it.

`protocol` has what both forms share: tensors, their types and the mapping to requests. `grpc` and `http` are the two
forms, and `http_body` reads bodies of JSON with binary tensors. `docs/open_inference.md` lists the tensors.
"""
