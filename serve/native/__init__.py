"""Native kernels: custom operators of ONNX Runtime in C++, their build, and the search for the built library."""
