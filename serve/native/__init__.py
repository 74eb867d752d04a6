"""The native library: kernels, decoding and the loop of the engines in C++, in `src`.

`build` compiles it, `library` finds it or reports why it is not used, `loop` is the C interface of the engines, and
`device` that of models on GPUs. ONNX Runtime loads it as custom operators. `docs/architecture.md` lists the folders of
`src`.
"""
