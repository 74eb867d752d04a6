"""Our Transformers as files for the peers that compute with PyTorch: configuration and parameters, nothing else.

Written by `benchmarks.systems.compared_model`, read in the processes of those peers.
"""

from pathlib import Path

import torch

from model.config import TransformerConfig
from model.network.attention import Positions
from model.network.transformer import Transformer
from model.tokenizer.tokenizer import PAD_ID

FILE = "model.pt"


def write_checkpoint(folder: Path, model: Transformer) -> None:
    """Writes a model with our special tokens into a new folder."""
    folder.mkdir(parents=True)
    content = {
        "config": model.config.model_dump(mode="json"),
        "vocabulary_size": model.vocabulary_size,
        "parameters": model.state_dict(),
    }
    torch.save(content, folder / FILE)


def read_checkpoint(folder: Path) -> Transformer:
    """Returns the model, in evaluation mode."""
    content = torch.load(folder / FILE, weights_only=True)
    config = TransformerConfig.model_validate(content["config"])
    # Memory is measured: no parameters are made that are replaced at once.
    with torch.device("meta"):
        model = Transformer(config, content["vocabulary_size"], PAD_ID)
    length = len(model.source_positions.table)
    # What a formula gives is not in the file.
    model.source_positions, model.target_positions = (
        Positions(config.positions, length, config.d_model) for _ in range(2)
    )
    model.load_state_dict(content["parameters"], assign=True)
    return model.eval()
