"""The folder of a training run: its configuration, tokenizer, checkpoints and logs.

Training writes it, export and resumed training read it. Knows the layout and nothing of how training works.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from model.config import Direction, RunConfig
from model.network.build import build_model
from model.network.translation_model import TranslationModel
from model.tokenizer.tokenizer import EOS_ID, Tokenizer, source_prefix

# Lightning names parameters after the attribute of its module that holds the model.
_PREFIX = "model."


class RunError(Exception):
    """The folder is not a run, or not one that can be used for this; the message says why."""


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """What training left behind: everything that an export needs."""

    config: RunConfig
    tokenizer: Tokenizer
    model: TranslationModel
    steps: int

    def source_ids(self, direction: Direction, texts: Sequence[str]) -> list[list[int]]:
        """Returns what the model reads of each text: the token of its direction, if there is one, the text and EOS.

        Raises:
            ValueError: if the model does not translate in this direction.
        """
        prefix = source_prefix(self.tokenizer, self.config.directions, direction)
        return [[*prefix, *ids, EOS_ID] for ids in self.tokenizer.encode_lines(texts)]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of a run."""

    path: Path

    @property
    def config(self) -> Path:
        """The configuration, YAML."""
        return self.path / "config.yaml"

    @property
    def tokenizer(self) -> Path:
        """The SentencePiece model."""
        return self.path / "tokenizer.model"

    @property
    def last_checkpoint(self) -> Path:
        """Where training goes on after an interruption."""
        return self.path / "checkpoints" / "last.ckpt"

    @property
    def best_checkpoint(self) -> Path:
        """The best checkpoint by the configured measure on the validation set."""
        return self.path / "checkpoints" / "best.ckpt"

    @property
    def samples(self) -> Path:
        """Validation sources, a line each with its two languages: an export makes its golden sentences of them."""
        return self.path / "samples.tsv"

    @property
    def logs(self) -> Path:
        """The folder of TensorBoard logs."""
        return self.path / "logs"

    @property
    def curves(self) -> Path:
        """A picture of the logs, drawn when training has taken its last step."""
        return self.path / "curves.svg"

    @property
    def done(self) -> Path:
        """Exists once training has taken its last step."""
        return self.path / "done"

    def load(self) -> TrainedModel:
        """Loads the best checkpoint, in evaluation mode.

        Raises:
            RunError: if there is none, or a file is missing or not what training wrote.
        """
        if not self.best_checkpoint.is_file():
            raise RunError(f"{self.path}: holds no checkpoint, expected a folder made by `dragoman train`")
        try:
            config = RunConfig.load(self.config)
            tokenizer = Tokenizer.load(self.tokenizer)
            checkpoint = torch.load(self.best_checkpoint, map_location="cpu", weights_only=True)
            model = build_model(config.model, tokenizer.vocabulary_size)
            parameters = {
                name.removeprefix(_PREFIX): value
                for name, value in checkpoint["state_dict"].items()
                if name.startswith(_PREFIX)
            }
            model.load_state_dict(parameters)
        except Exception as error:  # PyTorch's readers raise whatever the damage leads to
            raise RunError(f"{self.path}: damaged: {error}") from error
        return TrainedModel(config, tokenizer, model.eval(), checkpoint["global_step"])


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields the path to write to, so that a file appears complete or not at all, even if the process is killed."""
    part = path.with_name(f"{path.name}.part")
    yield part
    part.replace(path)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that appears complete or not at all."""
    with whole(path) as part:
        part.write_bytes(content)
