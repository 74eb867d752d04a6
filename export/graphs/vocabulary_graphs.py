"""Where a graph meets the vocabulary: ids become embeddings, states become logits."""

from torch import Tensor, nn
from torch.nn import functional


class Embedding(nn.Module):
    """Embeddings times a factor, most often sqrt(d_model) (Vaswani et al. 2017, section 3.4)."""

    def __init__(self, weight: nn.Parameter, scale: float) -> None:
        super().__init__()
        self.weight = weight
        self.scale = scale

    def forward(self, ids: Tensor) -> Tensor:
        """Maps ids [...] to embeddings [..., d_model]."""
        return functional.embedding(ids, self.weight) * self.scale


class Projection(nn.Module):
    """The product that gives a logit for every token of the vocabulary, with a bias or without."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias

    def forward(self, states: Tensor) -> Tensor:
        """Maps states [..., d_model] to logits [..., V]."""
        return functional.linear(states, self.weight, self.bias)


def frozen(weight: Tensor) -> nn.Parameter:
    """Returns a tensor as a parameter that no gradient reaches, so that the exporter stores it as a weight."""
    return nn.Parameter(weight.detach(), requires_grad=False)
