"""Which class implements which architecture. Everyone builds a model through here."""

from model.config import ModelConfig, RecurrentConfig
from model.recurrent import Recurrent
from model.tokenizer import PAD_ID
from model.transformer import Transformer
from model.translation_model import TranslationModel


def build_model(config: ModelConfig, vocabulary_size: int) -> TranslationModel:
    """Returns an untrained model of the configured shape, its parameters drawn from PyTorch's random numbers."""
    if isinstance(config, RecurrentConfig):
        return Recurrent(config, vocabulary_size, PAD_ID)
    return Transformer(config, vocabulary_size, PAD_ID)
