"""The trained model that another training starts from.

With another tokenizer, the embedding of a token is at first the mean of the embeddings of the earlier tokens that spell
it (Gee et al. 2022, "Fast Vocabulary Transfer for Language Model Compression", EMNLP Industry Track).
"""

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from dragoman.model.config import RunConfig
from dragoman.model.run import TrainedModel
from dragoman.model.tokenizer.tokenizer import UNK_ID, Tokenizer

# The parameters with a row per token.
TOKEN_PARAMETERS = ("embedding.weight", "target_embedding.weight", "output.weight")


def continued(initial: TrainedModel, config: RunConfig) -> RunConfig:
    """Returns the configuration of a further training; raises ValueError with the option that the model lacks."""
    for direction in config.directions:
        if direction not in initial.config.directions:
            known = ", ".join(map(str, initial.config.directions))
            raise ValueError(f"data: expected directions of the initial model, {known}, got {direction}")
    for option, expected, given in differing_options(initial.config, config, ["model"]):
        if option != "model.dropout":
            raise ValueError(f"{option}: expected {expected} as in the initial model, got {given}")
    return config.model_copy(update={"directions": initial.config.directions})


def differing_options(
    expected: RunConfig, given: RunConfig, sections: Iterable[str]
) -> Iterator[tuple[str, object, object]]:
    """Yields each option that differs, named as on the command line, with both values; None: it has no such option."""
    for section in sections:
        ours, theirs = (getattr(config, section).model_dump() for config in (expected, given))
        for name in ours | theirs:
            if ours.get(name) != theirs.get(name):
                yield f"{section}.{name.replace('_', '-')}", ours.get(name), theirs.get(name)


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
        end = next((end for end in range(len(piece), start, -1) if piece[start:end] in known), None)
        if end is not None:
            ids.append(known[piece[start:end]])
        start = start + 1 if end is None else end
    return ids or [UNK_ID]
