"""Paths and loading of a training run: configuration, model, tokenizer, checkpoints and logs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from dragoman.model.config import Direction, RunConfig, TransformerConfig
from dragoman.model.errors import RunError
from dragoman.model.network.transformer import Transformer
from dragoman.model.tokenizer.frozen_tokenizer import FrozenTokenizer, RunTokenizer
from dragoman.model.tokenizer.tokenizer import OWN_IDS, SpecialIds, Tokenizer


def build_model(config: TransformerConfig, vocabulary_size: int, special: SpecialIds = OWN_IDS) -> Transformer:
    """Returns an untrained model, with parameters drawn from PyTorch's global generator."""
    return Transformer(config, vocabulary_size, special.pad, bos_id=special.bos, eos_id=special.eos)


# Lightning prefixes parameter names with the attribute that holds the model.
_PREFIX = "model."


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """The result of training: everything that an export needs."""

    config: RunConfig
    tokenizer: RunTokenizer
    model: Transformer
    steps: int

    def source_ids(self, direction: Direction, texts: Sequence[str]) -> list[list[int]]:
        """Returns the direction's token, the text and EOS of each text; raises ValueError for another direction."""
        prefix = self.tokenizer.frame(self.config.directions, direction).source_prefix
        return [[*prefix, *ids, *self.tokenizer.source_suffix] for ids in self.tokenizer.encode_lines(texts)]


class RunFolder:
    """Paths of a run.

    Attributes:
        config: the configuration, YAML.
        inputs: hashes of data and initial model, YAML; runs of earlier versions have none.
        tokenizer: the SentencePiece model.
        frozen_tokenizer: the tokenizer of an imported model, JSON; there is one of both files.
        before: translations of the initial model, with which an export compares those of the run; JSON.
        last_checkpoint: the checkpoint from which an interrupted training resumes.
        best_checkpoint: the best checkpoint by the configured measure on the validation set.
        samples: source texts, a line each with both languages; an export derives its golden sentences from them.
        logs: the folder of TensorBoard logs.
        curves: a plot of the logs, drawn after the last training step.
        done: a file that exists after the last training step.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.inputs = path / "inputs.yaml"
        self.tokenizer = path / "tokenizer.model"
        self.frozen_tokenizer = path / "tokenizer.json"
        self.before = path / "before.json"
        self.last_checkpoint = path / "checkpoints" / "last.ckpt"
        self.best_checkpoint = path / "checkpoints" / "best.ckpt"
        self.samples = path / "samples.tsv"
        self.logs = path / "logs"
        self.curves = path / "curves.svg"
        self.done = path / "done"

    def load_tokenizer(self) -> RunTokenizer:
        """Reads the tokenizer; raises OSError, or TokenizerError if it is damaged."""
        if self.frozen_tokenizer.exists():
            return FrozenTokenizer(self.frozen_tokenizer.read_bytes())
        return Tokenizer.load(self.tokenizer)

    def load(self) -> TrainedModel:
        """Loads the best checkpoint in evaluation mode; raises RunError if it or another file is missing or damaged."""
        if not self.best_checkpoint.is_file():
            raise RunError(f"{self.path}: holds no checkpoint, expected a folder made by `dragoman train`")
        try:
            config = RunConfig.load(self.config)
            tokenizer = self.load_tokenizer()
            checkpoint = torch.load(self.best_checkpoint, map_location="cpu", weights_only=True)
            model = build_model(config.model, tokenizer.vocabulary_size, tokenizer.special)
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
