"""Paths and loading of a training run: configuration, model, tokenizer, checkpoints and logs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from dragoman.model.config import Direction, ModelConfig, RecurrentConfig, RunConfig
from dragoman.model.errors import RunError
from dragoman.model.network.recurrent import Recurrent
from dragoman.model.network.transformer import Transformer
from dragoman.model.network.translation_model import TranslationModel
from dragoman.model.tokenizer.tokenizer import EOS_ID, PAD_ID, Tokenizer, source_prefix


def build_model(config: ModelConfig, vocabulary_size: int) -> TranslationModel:
    """Returns an untrained model, with parameters drawn from PyTorch's global generator."""
    if isinstance(config, RecurrentConfig):
        return Recurrent(config, vocabulary_size, PAD_ID)
    return Transformer(config, vocabulary_size, PAD_ID)


# Lightning prefixes parameter names with the attribute that holds the model.
_PREFIX = "model."


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """The result of training: everything that an export needs."""

    config: RunConfig
    tokenizer: Tokenizer
    model: TranslationModel
    steps: int

    def source_ids(self, direction: Direction, texts: Sequence[str]) -> list[list[int]]:
        """Returns the encoder input of each text: the direction's token if the model has one, the text and EOS.

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
    def inputs(self) -> Path:
        """Hashes of data and initial model, YAML; runs of earlier versions have none."""
        return self.path / "inputs.yaml"

    @property
    def tokenizer(self) -> Path:
        """The SentencePiece model."""
        return self.path / "tokenizer.model"

    @property
    def last_checkpoint(self) -> Path:
        """The checkpoint from which an interrupted training resumes."""
        return self.path / "checkpoints" / "last.ckpt"

    @property
    def best_checkpoint(self) -> Path:
        """The best checkpoint by the configured measure on the validation set."""
        return self.path / "checkpoints" / "best.ckpt"

    @property
    def samples(self) -> Path:
        """Source texts, a line each with both languages; an export derives its golden sentences from them."""
        return self.path / "samples.tsv"

    @property
    def logs(self) -> Path:
        """The folder of TensorBoard logs."""
        return self.path / "logs"

    @property
    def curves(self) -> Path:
        """A plot of the logs, drawn after the last training step."""
        return self.path / "curves.svg"

    @property
    def done(self) -> Path:
        """A file that exists after the last training step."""
        return self.path / "done"

    def load(self) -> TrainedModel:
        """Loads the best checkpoint in evaluation mode; raises RunError if it or another file is missing or damaged."""
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
            steps = int(checkpoint["global_step"])
        except Exception as error:  # PyTorch's readers raise any type, depending on the damage
            raise RunError(f"{self.path}: damaged: {error}") from error
        return TrainedModel(config, tokenizer, model.eval(), steps)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields a temporary path and renames it to `path` at the end: the file appears complete or not at all.

    Removes the temporary file if the block fails: on a full disk it takes space that a next attempt needs.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file so that it appears complete or not at all."""
    with whole(path) as part:
        part.write_bytes(content)
