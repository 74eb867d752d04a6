"""Text to ids and back: tokenizers, the tokens that name a direction, and sampled segmentations."""
