"""From a checkpoint to a bundle: ONNX graphs, manifest, golden sentences and verification."""
