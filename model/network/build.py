"""Which class implements which architecture. Everyone builds a model through here."""

from model.config import ModelConfig, RecurrentConfig
from model.network.recurrent import Recurrent
from model.network.transformer import Transformer
from model.network.translation_model import TranslationModel
from model.tokenizer.tokenizer import PAD_ID


def build_model(config: ModelConfig, vocabulary_size: int) -> TranslationModel:
    """Returns an untrained model of the configured shape, its parameters drawn from PyTorch's random numbers."""
    if isinstance(config, RecurrentConfig):
        return Recurrent(config, vocabulary_size, PAD_ID)
    return Transformer(config, vocabulary_size, PAD_ID)
