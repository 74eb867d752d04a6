"""What a run is made of: the shape of the model, its tokenizer and how it is trained. Knows no torch.

A recipe is a YAML file with these three sections. It is validated here; unknown keys are refused. The configuration of
a run is stored in its folder and travels on into the bundle.
"""

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

RECIPES = Path(__file__).parent / "recipes"


class Section(BaseModel):
    """A frozen group of options; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SequenceLimits(Section):
    """What every architecture has: how long sequences may be, and how much is dropped in training."""

    dropout: float = Field(0.1, ge=0, lt=1, description="probability of dropping a unit of a sub-layer's output")
    max_source_tokens: int = Field(256, gt=1, description="longest source, end token included")
    max_target_tokens: int = Field(256, gt=1, description="longest translation, end token excluded")


class TransformerConfig(SequenceLimits):
    """Shape of a Transformer. The defaults are the base model of Vaswani et al. 2017, Table 3."""

    architecture: Literal["transformer"] = Field(
        "transformer", description="transformer: attention layers; recurrent: gated recurrent units with attention"
    )
    d_model: int = Field(512, gt=0, description="width of every layer's input and output")
    d_ff: int = Field(2048, gt=0, description="inner width of the feed-forward network")
    heads: int = Field(8, gt=0, description="attention heads; the head size d_model / heads is a multiple of 8")
    encoder_layers: int = Field(6, gt=0, description="layers of the encoder")
    decoder_layers: int = Field(6, gt=0, description="layers of the decoder")
    norm_position: Literal["post", "pre"] = Field("post", description="normalize after a sub-layer or before it")
    norm: Literal["layer", "rms"] = Field("layer", description="layer normalization or root-mean-square normalization")
    activation: Literal["relu", "gelu", "silu", "swiglu"] = Field(
        "relu", description="activation of the feed-forward network"
    )
    positions: Literal["sinusoidal", "learned"] = Field("sinusoidal", description="how positions are encoded")
    tie_embeddings: bool = Field(True, description="one matrix for source, target and output; else one for each")
    scale_embeddings: bool = Field(True, description="multiply embeddings by sqrt(d_model)")
    output_bias: bool = Field(False, description="add a bias to the logits; imported models have one, training has not")

    @model_validator(mode="after")
    def _check_head_size(self) -> "TransformerConfig":
        if self.d_model % (8 * self.heads):
            raise ValueError(f"d_model is {self.d_model}, expected a multiple of 8 * heads = {8 * self.heads}")
        return self

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.heads


class RecurrentConfig(SequenceLimits):
    """Shape of a recurrent encoder-decoder with attention: the Transformer's ancestors.

    `additive` is the decoder of Bahdanau et al. 2015, whose attention looks before the recurrent step. The others are
    the decoder of Luong et al. 2015, whose attention looks after it and is fed into the next one; the local ones score
    with `general`.
    """

    architecture: Literal["recurrent"] = Field(description="the ancestors of the Transformer")
    attention: Literal["additive", "dot", "general", "concat", "local_monotonic", "local_predictive"] = Field(
        "additive", description="how the decoder looks at the source"
    )
    hard: bool = Field(False, description="attend to one sampled position, trained with REINFORCE, instead of to all")
    d_model: int = Field(256, gt=0, description="width of embeddings and of the recurrent states")
    encoder_layers: int = Field(1, gt=0, description="bidirectional recurrent layers of the encoder")
    decoder_layers: int = Field(1, gt=0, description="recurrent layers of the decoder")
    window: int = Field(10, gt=0, description="local attention sees so many positions on either side (D in the paper)")

    @model_validator(mode="after")
    def _check_width(self) -> "RecurrentConfig":
        if self.d_model % 2:
            raise ValueError(f"d_model is {self.d_model}, expected an even number: half for each encoding direction")
        return self

    @model_validator(mode="after")
    def _check_hard(self) -> "RecurrentConfig":
        if self.hard and self.attention != "additive":
            raise ValueError(f"hard attention is trained with attention: additive, not with {self.attention}")
        return self


def _architecture(values: object) -> str:
    architecture = values.get("architecture") if isinstance(values, dict) else getattr(values, "architecture", None)
    return f"architecture={architecture or 'transformer'}"


# A tag is no name of a field, so that a message can tell the two apart in the place of an error.
ModelConfig = Annotated[
    Annotated[TransformerConfig, Tag("architecture=transformer")]
    | Annotated[RecurrentConfig, Tag("architecture=recurrent")],
    Discriminator(_architecture),
]


class Direction(Section):
    """What a model translates from and into, as ISO 639-1 codes."""

    source: str = Field(pattern=r"^[a-z]{2,3}$", description="language of the source")
    target: str = Field(pattern=r"^[a-z]{2,3}$", description="language of the translation")

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


class TokenizerConfig(Section):
    """The SentencePiece model that source and target share."""

    kind: Literal["unigram", "bpe"] = Field("unigram", description="unigram language model or byte-pair encoding")
    vocabulary_size: int = Field(32000, gt=8, description="upper bound of the number of tokens")
    training_lines: int = Field(1_000_000, gt=0, description="lines of text, of all languages, that it is trained on")
    character_coverage: float = Field(
        1.0, gt=0.9, le=1, description="share of the characters that get a token; less for scripts with thousands"
    )


class CleaningConfig(Section):
    """Which training pairs are left out as noise. Validation and test data are never cleaned.

    Pairs with a blank side always go. The ratio is that of Moses' clean-corpus-n, here in characters, which every
    language has: it catches a wrong alignment, not a terse translation.
    """

    remove_duplicates: bool = Field(True, description="leave out a pair that came before in the same direction")
    remove_copies: bool = Field(
        False, description="leave out a pair whose sides are equal: untranslated text harms, but names belong there"
    )
    max_length_ratio: float | None = Field(
        9.0,
        ge=1,
        description="leave out a pair whose longer side has more than so many times the characters; None: off",
    )
    max_characters: int | None = Field(
        None,
        gt=0,
        description="leave out a pair with a longer side than this; what is too long for the model goes anyway",
    )


class TrainingConfig(Section):
    """How the parameters are found. The defaults are section 5 of Vaswani et al. 2017."""

    max_steps: int = Field(100_000, gt=0, description="optimizer steps")
    batch_tokens: int = Field(4096, gt=0, description="token budget of a batch: rows times its longest side")
    accumulated_batches: int = Field(1, gt=0, description="batches whose gradients make one optimizer step")
    learning_rate: float = Field(0.0007, gt=0, description="highest learning rate, reached at the end of the warm-up")
    schedule: Literal["inverse_square_root", "cosine"] = Field(
        "inverse_square_root", description="how the learning rate falls after the warm-up"
    )
    warmup_steps: int = Field(4000, gt=0, description="steps of linear warm-up")
    cooldown_steps: int = Field(0, ge=0, description="last steps, in which the learning rate falls linearly to zero")
    dropout_warmup_steps: int = Field(
        0, ge=0, description="first steps, in which dropout grows from nothing to model.dropout"
    )
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="probability mass spread over the vocabulary")
    r_drop: float = Field(0.0, ge=0, description="weight of the divergence between two passes with other units dropped")
    subword_sampling: float = Field(
        0.0, ge=0, description="smoothing of the segmentations that are sampled for every epoch, bold if small; 0: off"
    )
    gradient_clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    averaging: Literal["none", "exponential", "last"] = Field(
        "none", description="which parameters are validated and kept: the latest, or an average of them"
    )
    averaging_decay: float = Field(0.999, gt=0, lt=1, description="exponential: share of the old average at a step")
    averaged_validations: int = Field(10, gt=1, description="last: how many validations before the end are averaged")
    validation_every_steps: int = Field(1000, gt=0, description="steps between validations, each with a checkpoint")
    selection: Literal["loss", "bleu", "chrf"] = Field(
        "loss", description="measure on the validation set that picks the best checkpoint; bleu and chrf translate it"
    )
    patience: int | None = Field(None, gt=0, description="validations without improvement after which training stops")
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "auto"] = Field(
        "32-true", description="numbers to compute with; auto: bf16-mixed where the hardware has it, else 32-true"
    )
    seed: int = Field(1, description="seed of initialization, dropout, segmentations and the order of the batches")


class RunConfig(Section):
    """Everything that decides what a run computes, apart from its data."""

    directions: tuple[Direction, ...] = Field(min_length=1)
    model: ModelConfig = TransformerConfig()
    cleaning: CleaningConfig = CleaningConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _check_sampling(self) -> "RunConfig":
        if self.training.subword_sampling and self.tokenizer.kind != "unigram":
            raise ValueError(
                f"training.subword_sampling is {self.training.subword_sampling} with the tokenizer.kind"
                f" {self.tokenizer.kind}, expected 0 or the kind unigram"
            )
        return self

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
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


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
