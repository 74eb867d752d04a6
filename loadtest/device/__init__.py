"""What a device makes of a bundle: throughput and latency beside PyTorch, and the time of a step beside its floor."""
