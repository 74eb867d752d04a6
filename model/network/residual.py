"""The connection around every sub-layer, which adds what the sub-layer says to what it was asked about.

Also in two halves: what attention does between them needs more than the states, and gives more.
"""

from collections.abc import Callable

from torch import Tensor, nn

from model.config import TransformerConfig
from model.network.dropout import Dropout
from model.network.norms import build_norm


class Residual(nn.Module):
    """A residual connection with dropout and a normalisation, after the sub-layer or before it.

    post: Norm(x + Dropout(Sublayer(x))) (Vaswani et al. 2017, sections 3.1 and 5.4).
    pre: x + Dropout(Sublayer(Norm(x))) (Xiong et al. 2020, arXiv:2002.04745, table 1).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_position == "pre"
        self.norm = build_norm(config.norm, config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, states: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Runs a sub-layer: [B, T, d_model] -> [B, T, d_model]."""
        return self.after(states, sublayer(self.before(states)))

    def before(self, states: Tensor) -> Tensor:
        """Returns what the sub-layer reads: shape [B, T, d_model], like `states`."""
        return self._normalise(states) if self.norm_first else states

    def after(self, states: Tensor, sublayer_output: Tensor) -> Tensor:
        """Returns what follows the connection, from what came to it and what its sub-layer gave, [B, T, d_model]."""
        total = states + self.dropout(sublayer_output)
        return total if self.norm_first else self._normalise(total)

    def _normalise(self, states: Tensor) -> Tensor:
        normalised: Tensor = self.norm(states)
        return normalised
