"""Shapes of imported Transformers that training does not offer.

They are T5, relative positions, and other heads and gates.
"""

from typing import Literal

from pydantic import Field, model_validator

from dragoman.model.config import Distances, InnerActivation, TransformerConfig

# The CPU's cache keeps groups of four head dimensions.
HEAD_SIZE_STEP = 8
# Activations of training by activation and gate.
TRAINED: dict[tuple[InnerActivation, bool], Literal["relu", "gelu", "silu", "swiglu"]] = {
    ("relu", False): "relu",
    ("gelu", False): "gelu",
    ("silu", False): "silu",
    ("silu", True): "swiglu",
}


class ImportedConfig(TransformerConfig):
    """Shape of a Transformer whose graphs have standard operators only. `activation` is not used.

    Sinusoids and learned positions are tables of position vectors; a model with distances has tables of zeros.
    """

    width_of_head: int = Field(gt=0, description="width of one attention head; d_model does not limit it")
    inner: InnerActivation = Field(description="activation of the feed-forward network or of its gate")
    has_gate: bool = Field(description="a gate multiplies the inner layer of the feed-forward network")
    position_distances: Distances = Field(description="dependence of self-attention on distances")

    @model_validator(mode="after")
    def _check_head_size(self) -> "ImportedConfig":
        if self.width_of_head % HEAD_SIZE_STEP:
            raise ValueError(f"width_of_head: expected a multiple of {HEAD_SIZE_STEP}, got {self.width_of_head}")
        return self

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.width_of_head

    @property
    def inner_activation(self) -> InnerActivation:
        """Activation of the feed-forward network or of its gate."""
        return self.inner

    @property
    def gated(self) -> bool:
        """Whether a gate multiplies the inner layer of the feed-forward network."""
        return self.has_gate

    @property
    def distances(self) -> Distances:
        """How self-attention depends on the distance of two positions."""
        return self.position_distances

    @property
    def needs_standard_graphs(self) -> bool:
        """Whether neither PyTorch nor the native operators compute the model, only graphs of standard operators."""
        return True


def attention_fields(
    d_model: int, heads: int, head_size: int, activation: tuple[InnerActivation, bool], distances: Distances = "none"
) -> dict[str, object]:
    """Returns the fields of a `TransformerConfig`, or of an `ImportedConfig` if training does not offer them.

    `activation` is that of the feed-forward network or of its gate, and whether there is a gate.
    """
    fields: dict[str, object] = {"d_model": d_model, "heads": heads}
    if distances == "none" and d_model == heads * head_size and activation in TRAINED:
        return fields | {"activation": TRAINED[activation]}
    inner, has_gate = activation
    return fields | {"width_of_head": head_size, "inner": inner, "has_gate": has_gate, "position_distances": distances}
