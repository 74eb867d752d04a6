"""The model that another training starts from: a trained one, or an import with its own tokenizer.

With another tokenizer, the embedding of a token is at first the mean of the embeddings of the earlier tokens that spell
it (Gee et al. 2022, "Fast Vocabulary Transfer for Language Model Compression", EMNLP Industry Track).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat

import torch
from torch import Tensor

from dragoman.model.config import Direction, RunConfig, TokenizerConfig, TransformerConfig
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import TrainedModel
from dragoman.model.tokenizer.frozen_tokenizer import FrozenTokenizer, RunTokenizer
from dragoman.model.tokenizer.tokenizer import UNK_ID

# The parameters with a row per token.
TOKEN_PARAMETERS = ("embedding.weight", "target_embedding.weight", "output.weight")
# What an import computes from no text.
IMPORTED_PARAMETERS = ("source_positions.table", "target_positions.table", "output_bias")


def continued(initial: TrainedModel, config: RunConfig, base: Sequence[Direction] = ()) -> RunConfig:
    """Returns the configuration of a further training; options with default values are those of the initial model.

    `base` are the directions of its own domain's pairs. Raises ValueError with the option or direction it lacks.
    """
    for option, direction in chain(zip(repeat("data"), config.directions), zip(repeat("base-validation"), base)):
        if direction not in initial.config.directions:
            known = ", ".join(map(str, initial.config.directions))
            raise ValueError(f"{option}: expected directions of the initial model, {known}, got {direction}")
    usual = RunConfig(directions=config.directions, model=TransformerConfig())
    given_options = {option for option, _, _ in differing_options(usual, config, ["model"])}
    for option, expected, given in differing_options(initial.config, config, ["model"]):
        if option in given_options - {"model.dropout"}:
            raise ValueError(f"{option}: expected {expected} as in the initial model, got {given}")
    tokenizer = initial.config.tokenizer if config.tokenizer == TokenizerConfig() else config.tokenizer
    if isinstance(initial.tokenizer, FrozenTokenizer):
        for option, expected, given in differing_options(usual, config, ["tokenizer", "training"]):
            if option.startswith("tokenizer") or option in ("training.subword-sampling", "training.guided-alignment"):
                raise ValueError(f"{option}: expected {expected} for an imported model, got {given}")
    if config.training.frozen_embeddings and tokenizer != initial.config.tokenizer:
        raise ValueError("training.frozen-embeddings: expected False with another tokenizer, got True")
    model = initial.config.model.model_copy(update={"dropout": config.model.dropout})
    return config.model_copy(update={"directions": initial.config.directions, "model": model, "tokenizer": tokenizer})


def freeze(model: Transformer, config: RunConfig, tokenizer: RunTokenizer) -> None:
    """Marks parameters that training leaves as they are: embeddings on request, and what an import computes."""
    frozen: tuple[str, ...] = IMPORTED_PARAMETERS if isinstance(tokenizer, FrozenTokenizer) else ()
    frozen += TOKEN_PARAMETERS if config.training.frozen_embeddings else ()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)


def differing_options(
    expected: RunConfig, given: RunConfig, sections: Iterable[str]
) -> Iterator[tuple[str, object, object]]:
    """Yields each option that differs, named as on the command line, with both values; None: it has no such option."""
    for section in sections:
        ours, theirs = (getattr(config, section).model_dump() for config in (expected, given))
        for name in ours | theirs:
            if ours.get(name) != theirs.get(name):
                yield f"{section}.{name.replace('_', '-')}", ours.get(name), theirs.get(name)


def initial_parameters(initial: TrainedModel, tokenizer: RunTokenizer) -> dict[str, Tensor]:
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
