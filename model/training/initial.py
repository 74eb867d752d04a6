"""The trained model that another training starts from.

With another tokenizer, the embedding of a token is at first the mean of the embeddings of the earlier tokens that spell
it (Gee et al. 2022, "Fast Vocabulary Transfer for Language Model Compression", EMNLP Industry Track).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from model.config import RunConfig
from model.run import TrainedModel
from model.tokenizer.tokenizer import UNK_ID, Tokenizer

# The parameters with a row per token.
TOKEN_PARAMETERS = ("embedding.weight", "target_embedding.weight", "output.weight")


def continued(initial: TrainedModel, config: RunConfig) -> RunConfig:
    """Returns the configuration of a training that starts with a model: it keeps the model's directions.

    Raises:
        ValueError: if the shape differs from the model's, or the model lacks a direction; the message has the option.
    """
    for direction in config.directions:
        if direction not in initial.config.directions:
            known = ", ".join(map(str, initial.config.directions))
            raise ValueError(f"data: expected directions of the initial model, {known}, got {direction}")
    expected, given = initial.config.model.model_dump(), config.model.model_dump()
    for name in expected | given:
        if name != "dropout" and expected.get(name) != given.get(name):
            option = f"model.{name.replace('_', '-')}"
            raise ValueError(f"{option}: expected {expected.get(name)} as in the initial model, got {given.get(name)}")
    return config.model_copy(update={"directions": initial.config.directions})


def initial_parameters(initial: TrainedModel, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """Returns the parameters of a trained model for a tokenizer, which may be another one than the model's."""
    parameters = dict(initial.model.state_dict())
    if tokenizer.model == initial.tokenizer.model:
        return parameters
    known = {piece: token_id for token_id, piece in enumerate(initial.tokenizer.source_pieces)}
    spellings = [spell(piece, known) for piece in tokenizer.source_pieces]
    for name in TOKEN_PARAMETERS:
        if name in parameters:
            rows = parameters[name]  # [earlier tokens, D]
            parameters[name] = torch.stack([rows[ids].mean(dim=0) for ids in spellings])
    return parameters


def spell(piece: str, known: Mapping[str, int]) -> list[int]:
    """Returns the ids of the pieces that spell a piece, each the longest possible; UNK_ID if no character is known."""
    ids, start = [], 0
    while start < len(piece):
        ends = (end for end in range(len(piece), start, -1) if piece[start:end] in known)
        end = next(ends, None)
        if end is not None:
            ids.append(known[piece[start:end]])
        start = start + 1 if end is None else end
    return ids or [UNK_ID]
