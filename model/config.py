"""The configuration of a run: languages, model, data cleaning, tokenizer and training. Imports no torch.

A recipe is a YAML file with these sections; unknown keys are rejected. The configuration is stored in the run folder
and copied into the bundle.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dragoman.model.errors import RunError, first_problem, reason_of

RECIPES = Path(__file__).parent / "recipes"


class Section(BaseModel):
    """A frozen group of options that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# The numbers that PyTorch and NumPy take both.
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class SequenceLimits(Section):
    """Options of every architecture: sequence limits and dropout."""

    dropout: float = Field(0.1, ge=0, lt=1, description="probability of dropping a unit")
    max_source_tokens: int = Field(256, gt=1, description="longest source in tokens, EOS included")
    max_target_tokens: int = Field(256, gt=1, description="longest translation in tokens, EOS excluded")


# Activations of all feed-forward networks; `gelu_tanh` is the approximation of GELU by tanh.
InnerActivation = Literal["relu", "gelu", "gelu_tanh", "silu"]
# bias: a number per head is added to each score (Raffel et al. 2020, arXiv:1910.10683, section 2.1).
# vectors: a vector is added to keys and one to values (Shaw et al. 2018, arXiv:1803.02155, equations 3 and 4).
Distances = Literal["none", "bias", "vectors"]
# The sub-layer by which a decoder layer reads earlier positions: self-attention, or the simpler simple recurrent unit
# (Kim et al. 2019, https://aclanthology.org/D19-5632).
Memory = Literal["self_attention", "ssru"]


class TransformerConfig(SequenceLimits):
    """Shape of a Transformer. The defaults are the base model of Vaswani et al. 2017, Table 3."""

    architecture: Literal["transformer"] = Field("transformer", description="attention layers")
    d_model: int = Field(512, gt=0, description="width of the layers' input and output")
    d_ff: int = Field(2048, gt=0, description="inner width of the feed-forward network")
    heads: int = Field(8, gt=0, description="attention heads; d_model / heads must be a multiple of 8")
    encoder_layers: int = Field(6, gt=0, description="number of encoder layers")
    decoder_layers: int = Field(6, gt=0, description="number of decoder layers")
    norm_position: Literal["post", "pre"] = Field("post", description="normalization after or before a sub-layer")
    norm: Literal["layer", "rms"] = Field("layer", description="layer or root-mean-square normalization")
    norm_epsilon: float = Field(1e-5, gt=0, description="added under the square root of a normalization")
    norm_embeddings: bool = Field(False, description="normalize embeddings with their positions")
    activation: Literal["relu", "gelu", "silu", "swiglu"] = Field(
        "relu", description="activation of the feed-forward network"
    )
    decoder_memory: Memory = Field(
        "self_attention", description="how a decoder layer reads earlier positions; ssru: recurrent units"
    )
    positions: Literal["sinusoidal", "learned"] = Field("sinusoidal", description="position encoding")
    tie_embeddings: bool = Field(True, description="one matrix for source, target and output; else three")
    scale_embeddings: bool = Field(True, description="multiply embeddings by sqrt(d_model)")
    output_bias: bool = Field(False, description="add a bias to the logits; imported models only, not trained")

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


class Direction(Section):
    """A source and a target language: ISO 639 codes, with a script where a language has several, as zh-Hant."""

    source: str = Field(pattern=r"^[a-z]{2,3}(-[A-Z][a-z]{3})?$", description="source language")
    target: str = Field(pattern=r"^[a-z]{2,3}(-[A-Z][a-z]{3})?$", description="target language")

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


class TokenizerConfig(Section):
    """The SentencePiece model that source and target share."""

    kind: Literal["unigram", "bpe"] = Field("unigram", description="unigram language model or byte-pair encoding")
    vocabulary_size: int = Field(32000, gt=8, description="upper bound of the number of tokens")
    training_lines: int = Field(1_000_000, gt=0, description="lines of text of all languages to train on")
    character_coverage: float = Field(
        1.0, gt=0.9, le=1, description="share of characters with a token; lower for scripts of thousands"
    )


class CleaningConfig(Section):
    """Which training pairs are removed as noise. Validation and test data are never cleaned.

    Pairs with a blank side are always removed. The length ratio is that of Moses' clean-corpus-n, but in characters,
    which every language has. It catches wrong alignments, not terse translations.
    """

    remove_duplicates: bool = Field(True, description="remove repeated pairs of a direction")
    remove_copies: bool = Field(False, description="remove pairs with equal sides: untranslated text, but also names")
    remove_repetitions: bool = Field(
        False, description="remove pairs with one side that repeats a part four times in a row, as looping models do"
    )
    max_length_ratio: float | None = Field(
        9.0, ge=1, description="largest ratio of the two sides' lengths in characters; None: no limit"
    )
    max_characters: int | None = Field(
        None, gt=0, description="longest side in characters; None: only the token limits of the model"
    )


class TrainingConfig(Section):
    """Optimization options. The defaults are section 5 of Vaswani et al. 2017."""

    max_steps: int = Field(100_000, ge=0, description="optimizer steps; 0 requires an initial model, which stays")
    batch_tokens: int = Field(4096, gt=0, description="token budget of a batch: rows times longest side")
    accumulated_batches: int = Field(1, gt=0, description="batches per optimizer step")
    learning_rate: float = Field(0.0007, gt=0, description="highest learning rate, at the end of the warm-up")
    schedule: Literal["inverse_square_root", "cosine"] = Field(
        "inverse_square_root", description="decay of the learning rate after the warm-up"
    )
    warmup_steps: int = Field(4000, gt=0, description="steps of linear warm-up of the learning rate")
    cooldown_steps: int = Field(0, ge=0, description="last steps, with a linear decay of the learning rate to zero")
    dropout_warmup_steps: int = Field(0, ge=0, description="first steps, with a linear rise of dropout from zero")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="probability mass spread over the vocabulary")
    r_drop: float = Field(
        0.0, ge=0, description="R-Drop: weight of the divergence between two passes with different dropout"
    )
    guided_alignment: float = Field(
        0.0, ge=0, description="weight of the loss that trains one attention head to follow the data's word links"
    )
    subword_sampling: float = Field(
        0.0, ge=0, description="alpha of subword sampling per epoch; small values sample more freely; 0: off"
    )
    direction_temperature: float = Field(
        1.0,
        ge=1,
        description="share of a direction in an epoch: pairs^(1 / TEMPERATURE), normalized; 1: as in the data",
    )
    frozen_embeddings: bool = Field(False, description="keep the embeddings of the initial model, which saves memory")
    gradient_clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    averaging: Literal["none", "exponential", "last"] = Field(
        "none", description="average of the parameters to validate and save; none: the latest ones"
    )
    averaging_decay: float = Field(0.999, gt=0, lt=1, description="exponential averaging: weight of the old average")
    averaged_validations: int = Field(10, gt=1, description="last averaging: number of final validations to average")
    validation_every_steps: int = Field(1000, gt=0, description="steps between validations and checkpoints")
    selection: Literal["loss", "bleu", "chrf"] = Field(
        "loss", description="validation measure of the best checkpoint; bleu and chrf translate the set"
    )
    patience: int | None = Field(None, gt=0, description="validations without improvement before training stops")
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "auto"] = Field(
        "32-true", description="number format; auto: bf16-mixed if the hardware supports it, else 32-true"
    )
    seed: Seed = Field(1, description="seed of initialization, dropout, segmentations and batch order")


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
