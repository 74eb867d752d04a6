"""Computing on a device: a GPU, or in tests the CPU as if it were one; to the engine what `serve.engine.runtime` is."""
