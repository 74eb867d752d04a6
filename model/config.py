"""What a run is made of: the shape of the model, its tokenizer and how it is trained. Knows no torch.

A recipe is a YAML file with these three sections. It is validated here; unknown keys are refused. The configuration of
a run is stored in its folder and travels on into the bundle.
"""

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

RECIPES = Path(__file__).parent / "recipes"


class Section(BaseModel):
    """A frozen group of options; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelConfig(Section):
    """Shape of the Transformer. The defaults are the base model of Vaswani et al. 2017, Table 3."""

    d_model: int = Field(512, gt=0, description="width of every layer's input and output")
    d_ff: int = Field(2048, gt=0, description="inner width of the feed-forward network")
    heads: int = Field(8, gt=0, description="attention heads; the head size d_model / heads is a multiple of 8")
    encoder_layers: int = Field(6, gt=0, description="layers of the encoder")
    decoder_layers: int = Field(6, gt=0, description="layers of the decoder")
    dropout: float = Field(0.1, ge=0, lt=1, description="probability of dropping a unit of a sub-layer's output")
    max_source_tokens: int = Field(256, gt=1, description="longest source, end token included")
    max_target_tokens: int = Field(256, gt=1, description="longest translation, end token excluded")

    @model_validator(mode="after")
    def _check_head_size(self) -> "ModelConfig":
        if self.d_model % (8 * self.heads):
            raise ValueError(f"d_model is {self.d_model}, expected a multiple of 8 * heads = {8 * self.heads}")
        return self

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.heads


class TokenizerConfig(Section):
    """The SentencePiece model that source and target share."""

    vocabulary_size: int = Field(32000, gt=8, description="upper bound of the number of tokens")
    training_lines: int = Field(1_000_000, gt=0, description="lines of text, of both languages, that it is trained on")


class TrainingConfig(Section):
    """How the parameters are found. The defaults are section 5 of Vaswani et al. 2017."""

    max_steps: int = Field(100_000, gt=0, description="optimiser steps")
    batch_tokens: int = Field(4096, gt=0, description="token budget of a batch: rows times its longest side")
    learning_rate_factor: float = Field(1.0, gt=0, description="multiplies the paper's learning-rate schedule")
    warmup_steps: int = Field(4000, gt=0, description="steps of linear warm-up")
    cooldown_steps: int = Field(0, ge=0, description="last steps, in which the learning rate falls linearly to zero")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="probability mass spread over the vocabulary")
    gradient_clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    validation_every_steps: int = Field(1000, gt=0, description="steps between validations, each with a checkpoint")
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = Field("32-true", description="Lightning's precision")
    seed: int = Field(1, description="seed of initialisation, dropout and the order of the batches")


class RunConfig(Section):
    """Everything that decides what a run computes, apart from its data."""

    source_language: str
    target_language: str
    model: ModelConfig = ModelConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    training: TrainingConfig = TrainingConfig()

    @classmethod
    def load(cls, path: Path) -> "RunConfig":
        """Reads the configuration of a run.

        Raises:
            FileNotFoundError: if the run has none.
            ValueError: if it is not one.
        """
        return cls.model_validate(read_yaml(path))

    def to_yaml(self) -> str:
        """Returns the text of a file that `load` reads."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False)


def read_yaml(path: Path) -> object:
    """Returns what a YAML file holds.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is not YAML; the message names the file and the line.
    """
    try:
        with path.open(encoding="utf-8") as file:  # a stream, because its name is then in the message
            return yaml.safe_load(file)
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from error


def recipe_path(recipe: str) -> Path:
    """Returns the file of a recipe, given by name or by path."""
    named = RECIPES / f"{recipe}.yaml"
    return named if named.is_file() else Path(recipe)
