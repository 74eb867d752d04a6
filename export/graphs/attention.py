"""The seam between the graphs of a Transformer and the operators that attention is made of.

A graph is for ONNX Runtime's own operators (`contrib_attention`) or for the standard alone (`standard_attention`). What
they compute is the same; so are the caches, unless they are kept in 8-bit integers (`quantised_attention`).

Shapes: B rows of a prefill, S source length, R rows of a step, H heads, D head size, W = H * D, C capacity of a cache.
"""

from abc import ABC, abstractmethod

from torch import Tensor

from model.network.attention import KeysValues
from serve.bundle.manifest import Element


class AttentionOperators(ABC):
    """Attention in its three places. Every row has a length of its own, behind which nothing is read.

    So a row's result depends neither on padding nor on the rows beside it.

    Attributes:
        element: what the caches are made of.
    """

    element: Element = "float"

    def __init__(self, heads: int) -> None:
        self.heads = heads

    def in_decoder_layer(self, number: int) -> "AttentionOperators":  # noqa: ARG002 - they may be the same everywhere
        """Returns the operators of one decoder layer."""
        return self

    def keep(self, source: KeysValues) -> KeysValues:
        """Returns the keys and values of a source, float [B, H, S, D], as a decoder layer's caches hold them."""
        return source

    def kept_keys(self, key: Tensor) -> Tensor:
        """Returns source keys of a layer's cache, of any shape, in floats."""
        return key

    @abstractmethod
    def attend_in_source(self, qkv: Tensor, lengths: Tensor) -> Tensor:
        """Attends among the positions of a source.

        Args:
            qkv: queries, keys and values side by side. Shape [B, S, 3 * W].
            lengths: real positions of each row, int32 [B].

        Returns:
            Shape [B, S, W]; meaningless behind a row's length.
        """

    @abstractmethod
    def attend_in_target(
        self, qkv: Tensor, past_key: Tensor, past_value: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attends from one new position of each row to itself and the ones before it.

        Args:
            qkv: queries, keys and values of the new position. Shape [R, 1, 3 * W].
            past_key: keys so far. Shape [R, H, C, D].
            past_value: values so far. Shape [R, H, C, D].
            positions: valid positions of each row before this one, int32 [R].

        Returns:
            The attended states [R, 1, W], and the caches with the new position written.
        """

    @abstractmethod
    def attend_to_source(
        self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Attends from one position of each row to its source.

        Args:
            query: shape [R, 1, W].
            key: source keys. Shape [R, H, C, D].
            value: source values. Shape [R, H, C, D].
            lengths: real source tokens, int32 [R].

        Returns:
            The attended states [R, 1, W], and the caches where the operator insists on giving them back.
        """
