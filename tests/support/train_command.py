"""Short runs of `dragoman train`, and its refusals."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.model.run import RunFolder

MAX_STEPS = 12
RECIPE = {
    "model": {
        "d_model": 16,
        "d_ff": 16,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "dropout": 0.3,
        "max_source_tokens": 32,
        "max_target_tokens": 24,
    },
    "tokenizer": {"vocabulary_size": 60},
    "training": {
        "max_steps": MAX_STEPS,
        "batch_tokens": 100,
        "validation_every_steps": 4,
        # High enough that the model gets worse: the best checkpoint differs from the last.
        "learning_rate": 2.2,
        "warmup_steps": 5,
    },
}


def start(arguments: list[str], out: Path, *more: str) -> RunFolder:
    command_line.run("train", [*arguments, "--out", str(out), *more])
    return RunFolder(out)


def refusal(start_it: Callable[[], object]) -> str:
    """Returns the single line with which a command exits; the exit code is 1."""
    with pytest.raises(SystemExit) as ended:
        start_it()
    message = ended.value.code
    assert isinstance(message, str)
    assert message.startswith("dragoman train: ")
    assert "\n" not in message
    return message
