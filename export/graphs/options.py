"""Which graphs a Transformer has: variants, precisions, alignment heads."""

from collections.abc import Sequence

from dragoman.model.config import TransformerConfig
from dragoman.model.errors import UserError
from dragoman.serve.bundle.manifest import AttentionHead, GraphVariant, Precision


class UnsupportedGraphError(UserError):
    """The architecture has no such graphs. The message names the option and the expected value."""


def check_options(
    config: TransformerConfig, variant: GraphVariant, precision: Precision, alignment_heads: Sequence[AttentionHead]
) -> None:
    """Checks that a Transformer has such graphs; raises UnsupportedGraphError if not."""
    layers, heads = config.decoder_layers, config.heads
    for chosen in alignment_heads:
        if chosen.layer >= layers or chosen.head >= heads:
            expected = f"a layer below {layers} and a head below {heads}, LAYER:HEAD"
            raise UnsupportedGraphError(f"align: {chosen}: expected {expected}")
    if config.needs_standard_graphs and variant != "cpu":
        problem = "expected cpu for a model with other heads, gates or positions than training offers"
        raise UnsupportedGraphError(f"variant: {variant}: {problem}")
    if config.decoder_memory == "ssru" and variant != "cpu":
        raise UnsupportedGraphError(f"variant: {variant}: expected cpu for a model with recurrent units")
    if (variant == "cuda") != (precision == "fp16"):
        expected = "fp16 exactly if the variant is cuda"
        raise UnsupportedGraphError(f"precision: {precision} with the variant {variant}: expected {expected}")
