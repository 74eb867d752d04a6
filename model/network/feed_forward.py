"""The feed-forward networks, which work at each position alike and see no other."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from model.config import TransformerConfig

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
}


def build_feed_forward(config: TransformerConfig) -> "FeedForward | GatedFeedForward":
    """Returns the network of the configured activation."""
    if config.activation == "swiglu":
        return GatedFeedForward(config.d_model, config.d_ff)
    return FeedForward(config.d_model, config.d_ff, ACTIVATIONS[config.activation])


class FeedForward(nn.Module):
    """FFN(x) = f(x W1 + b1) W2 + b2 (Vaswani et al. 2017, equation 2, where f is ReLU).

    ReLU(x) = max(0, x); GELU(x) = x * Phi(x) with the distribution function Phi of the standard normal distribution
    (Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2); SiLU(x) = x * sigmoid(x) (the same paper, section 4).
    """

    def __init__(self, d_model: int, d_ff: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.activation = activation

    def forward(self, states: Tensor) -> Tensor:
        """Maps [..., d_model] to [..., d_model]."""
        mapped: Tensor = self.outer(self.activation(self.inner(states)))
        return mapped


class GatedFeedForward(nn.Module):
    """FFN(x) = (Swish(x W) * (x V)) W2 with Swish(x) = x * sigmoid(x), without biases: SwiGLU.

    (Shazeer 2020, arXiv:2002.05202, equation 6.) Three matrices instead of two: the paper takes 2/3 of the inner width
    of a plain network for as many parameters; here it is as configured.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.inner = nn.Linear(d_model, d_ff, bias=False)
        self.outer = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """Maps [..., d_model] to [..., d_model]."""
        mapped: Tensor = self.outer(functional.silu(self.gate(states)) * self.inner(states))
        return mapped
