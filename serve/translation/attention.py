"""Requests for the attention of a layer and head, and the answers. Independent of protocols."""

from dataclasses import dataclass

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.observability.usage import RequestUsage, Timings
from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.runtime.attention import HeadAttention
from dragoman.serve.translation.request import ScoreRequest

NO_HEADS = "expected a model that runs on native CPU operators, on a server without --no-alignments"


def check_head(reader: HeadAttention, layer: int | None, head: int | None) -> None:
    """Raises InvalidRequestError if the model has no such layer or head."""
    for field, number, count in (("layer", layer, reader.layers), ("head", head, reader.heads)):
        if number is not None and not 0 <= number < count:
            raise InvalidRequestError(field, f"{number}, expected 0 to {count - 1}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRequest(ScoreRequest):
    """A request for the attention of given translations.

    Attributes:
        layer: None: the mean over all layers.
        head: None: the mean over all heads.
    """

    layer: int | None = None
    head: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAttention:
    """The attention of a given translation.

    Attributes:
        translation: as the tokens of the model write it.
        alignment: by words.
        source_tokens: length of the source, direction prefix and end token included.
        target_tokens: length of the translation, the end token excluded.
    """

    translation: str
    alignment: Alignment
    source_tokens: int
    target_tokens: int


@dataclass(frozen=True, slots=True)
class AttentionResponse:
    """One attention per pair of the request, in its order.

    Attributes:
        layers: of the decoder.
        heads: of each layer.
    """

    attentions: tuple[PairAttention, ...]
    layers: int
    heads: int
    timings: Timings
    model: str = ""

    @property
    def usage(self) -> RequestUsage:
        """Counts and times for logs, traces and metrics."""
        source_tokens = sum(attention.source_tokens for attention in self.attentions)
        target_tokens = sum(attention.target_tokens for attention in self.attentions)
        return RequestUsage(len(self.attentions), source_tokens, target_tokens, self.timings)
