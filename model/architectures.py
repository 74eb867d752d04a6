"""Which class implements which architecture."""

from model.config import ModelConfig, TransformerConfig
from model.tokenizer import PAD_ID
from model.transformer import Transformer


def build_model(config: ModelConfig, vocabulary_size: int) -> Transformer:
    """Returns an untrained model of the configured shape, its parameters drawn from PyTorch's random numbers."""
    if not isinstance(config, TransformerConfig):
        raise NotImplementedError(config.architecture)
    return Transformer(config, vocabulary_size, PAD_ID)
