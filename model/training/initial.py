"""The trained model that another training starts from."""

from collections.abc import Collection

from model.config import Direction, RunConfig
from model.run import TrainedModel


def continued(initial: TrainedModel, config: RunConfig) -> RunConfig:
    """Returns the configuration of a training that starts with a model: it keeps the model's directions.

    Raises:
        ValueError: if shape or tokenizer differ from the model's, or the model lacks a direction; the message has the
            option.
    """
    _check_directions(initial.config.directions, config.directions)
    for section, free in (("model", {"dropout"}), ("tokenizer", set[str]())):
        expected, given = getattr(initial.config, section).model_dump(), getattr(config, section).model_dump()
        for name in expected | given:
            if name not in free and expected.get(name) != given.get(name):
                option = f"{section}.{name.replace('_', '-')}"
                raise ValueError(
                    f"{option}: expected {expected.get(name)} as in the initial model, got {given.get(name)}"
                )
    return config.model_copy(update={"directions": initial.config.directions})


def _check_directions(known: Collection[Direction], given: Collection[Direction]) -> None:
    for direction in given:
        if direction not in known:
            expected = ", ".join(map(str, known))
            raise ValueError(f"data: expected directions of the initial model, {expected}, got {direction}")
