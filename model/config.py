"""The configuration of a run: languages, model, data cleaning, tokenizer and training. Imports no torch.

A recipe is a YAML file with these sections; unknown keys are rejected. The configuration is stored in the run folder
and copied into the bundle.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dragoman.model.errors import RunError, first_problem, reason_of
from dragoman.tables import described

RECIPES = Path(__file__).parent / "recipes"


class Section(BaseModel):
    """A frozen group of options that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# The numbers that PyTorch and NumPy take both.
Seed = Annotated[int, Field(ge=0, lt=2**32)]


@described(__file__)
class SequenceLimits(Section):
    """Options of every architecture: sequence limits and dropout."""

    dropout: float = Field(0.1, ge=0, lt=1)
    max_source_tokens: int = Field(256, gt=1)
    max_target_tokens: int = Field(256, gt=1)


# Activations of all feed-forward networks; `gelu_tanh` is the approximation of GELU by tanh.
InnerActivation = Literal["relu", "gelu", "gelu_tanh", "silu"]
# bias: a number per head is added to each score (Raffel et al. 2020, arXiv:1910.10683, section 2.1).
# vectors: a vector is added to keys and one to values (Shaw et al. 2018, arXiv:1803.02155, equations 3 and 4).
Distances = Literal["none", "bias", "vectors"]
# The sub-layer by which a decoder layer reads earlier positions: self-attention, or the simpler simple recurrent unit
# (Kim et al. 2019, https://aclanthology.org/D19-5632).
Memory = Literal["self_attention", "ssru"]


@described(__file__)
class TransformerConfig(SequenceLimits):
    """Shape of a Transformer. The defaults are the base model of Vaswani et al. 2017, Table 3."""

    architecture: Literal["transformer"] = "transformer"
    d_model: int = Field(512, gt=0)
    d_ff: int = Field(2048, gt=0)
    heads: int = Field(8, gt=0)
    encoder_layers: int = Field(6, gt=0)
    decoder_layers: int = Field(6, gt=0)
    norm_position: Literal["post", "pre"] = "post"
    norm: Literal["layer", "rms"] = "layer"
    norm_epsilon: float = Field(1e-5, gt=0)
    norm_embeddings: bool = False
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    decoder_memory: Memory = "self_attention"
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    tie_embeddings: bool = True
    scale_embeddings: bool = True
    output_bias: bool = False

    @model_validator(mode="after")
    def _check_head_size(self) -> "TransformerConfig":
        if self.d_model % (8 * self.heads):
            raise ValueError(f"d_model: expected a multiple of 8 * heads = {8 * self.heads}, got {self.d_model}")
        return self

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.heads

    @property
    def attention_width(self) -> int:
        """Width of all attention heads together."""
        return self.heads * self.head_size

    @property
    def inner_activation(self) -> InnerActivation:
        """Activation of the feed-forward network or of its gate."""
        return "silu" if self.activation == "swiglu" else self.activation

    @property
    def gated(self) -> bool:
        """Whether a gate multiplies the inner layer of the feed-forward network."""
        return self.activation == "swiglu"

    @property
    def distances(self) -> Distances:
        """How self-attention depends on the distance of two positions."""
        return "none"

    @property
    def needs_standard_graphs(self) -> bool:
        """Whether neither PyTorch nor the native operators compute the model, only graphs of standard operators."""
        return False


@described(__file__)
class Direction(Section):
    """A source and a target language: ISO 639 codes, with a script where a language has several, as zh-Hant."""

    source: str = Field(pattern=r"^[a-z]{2,3}(-[A-Z][a-z]{3})?$")
    target: str = Field(pattern=r"^[a-z]{2,3}(-[A-Z][a-z]{3})?$")

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


@described(__file__)
class TokenizerConfig(Section):
    """The SentencePiece model that source and target share."""

    kind: Literal["unigram", "bpe"] = "unigram"
    vocabulary_size: int = Field(32000, gt=8)
    training_lines: int = Field(1_000_000, gt=0)
    character_coverage: float = Field(1.0, gt=0.9, le=1)


@described(__file__)
class CleaningConfig(Section):
    """Which training pairs are removed as noise. Validation and test data are never cleaned.

    Pairs with a blank side are always removed. The length ratio is that of Moses' clean-corpus-n, but in characters,
    which every language has. It catches wrong alignments, not terse translations.
    """

    remove_duplicates: bool = True
    remove_copies: bool = False
    remove_repetitions: bool = False
    max_length_ratio: float | None = Field(9.0, ge=1)
    max_characters: int | None = Field(None, gt=0)


@described(__file__)
class TrainingConfig(Section):
    """Optimization options. The defaults are section 5 of Vaswani et al. 2017."""

    max_steps: int = Field(100_000, ge=0)
    batch_tokens: int = Field(4096, gt=0)
    accumulated_batches: int = Field(1, gt=0)
    learning_rate: float = Field(0.0007, gt=0)
    schedule: Literal["inverse_square_root", "cosine"] = "inverse_square_root"
    warmup_steps: int = Field(4000, gt=0)
    cooldown_steps: int = Field(0, ge=0)
    dropout_warmup_steps: int = Field(0, ge=0)
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    r_drop: float = Field(0.0, ge=0)
    guided_alignment: float = Field(0.0, ge=0)
    subword_sampling: float = Field(0.0, ge=0)
    direction_temperature: float = Field(1.0, ge=1)
    frozen_embeddings: bool = False
    gradient_clip: float = Field(1.0, gt=0)
    averaging: Literal["none", "exponential", "last"] = "none"
    averaging_decay: float = Field(0.999, gt=0, lt=1)
    averaged_validations: int = Field(10, gt=1)
    validation_every_steps: int = Field(1000, gt=0)
    selection: Literal["loss", "bleu", "chrf"] = "loss"
    patience: int | None = Field(None, gt=0)
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "auto"] = "32-true"
    seed: Seed = 1


class RunConfig(Section):
    """Everything that determines the result of a run except its data."""

    directions: tuple[Direction, ...] = Field(min_length=1)
    model: TransformerConfig = TransformerConfig()
    cleaning: CleaningConfig = CleaningConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _check_training(self) -> "RunConfig":
        if self.training.subword_sampling and self.tokenizer.kind != "unigram":
            raise ValueError(
                f"training.subword_sampling: expected 0 for the tokenizer.kind {self.tokenizer.kind},"
                f" got {self.training.subword_sampling}"
            )
        return self

    @classmethod
    def load(cls, path: Path) -> "RunConfig":
        """Reads the configuration of a run; raises FileNotFoundError if there is none, RunError if it is invalid."""
        try:
            return cls.model_validate(read_yaml(path))
        except ValidationError as error:
            raise RunError(f"{path}: expected a run configuration: {first_problem(error)}") from error
        except ValueError as error:
            raise RunError(f"{path}: expected a run configuration: {error}") from error

    def to_yaml(self) -> str:
        """Returns YAML text for `load`."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def read_yaml(path: Path) -> object:
    """Returns the content of a YAML file; raises OSError, or ValueError with file and line if it is not YAML."""
    try:
        with path.open(encoding="utf-8") as file:  # a stream, because the error message then has the file name
            return yaml.safe_load(file)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"not YAML: {reason_of(error)}") from error


def read_recipe(path: Path) -> dict[str, Any]:
    """Returns the sections of a recipe; raises OSError if the file is unreadable, ValueError if it has no sections."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ValueError("expected the sections model, tokenizer, training, ...")  # noqa: TRY004 - of a file
    return content


def recipe_path(recipe: str) -> Path:
    """Returns the file of a recipe, given as a name or as a path."""
    named = RECIPES / f"{recipe}.yaml"
    return named if named.is_file() else Path(recipe)
