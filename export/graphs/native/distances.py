"""Self-attention that depends on the distance of two positions, as nodes of a function body.

Raffel et al. 2020 (arXiv:1910.10683) add a number per head to each score. Shaw et al. 2018 (arXiv:1803.02155) add a
vector per distance to keys and values. `dragoman.model.weights` has the tables; their row L - 1 is that of distance 0.

Shapes: B rows or sources, or 1 where all have the same positions; n blocks of 16 keys, H heads, D head size, T queries
per row, L positions.
"""

from dragoman.export.graphs.native.body import Body
from dragoman.export.graphs.native.layout import LANES
from dragoman.model.config import TransformerConfig
from dragoman.model.weights import position_count


class LayerDistances:
    """The tables of one self-attention at the indices of all pairs of a query and a key."""

    def __init__(self, body: Body, config: TransformerConfig, name: str, indices: str) -> None:
        """Stores the name of an attention and the rows of its tables, int64 [B, n, T, 16]."""
        self._body = body
        self._kind = config.distances
        self._name = name
        self._indices = indices

    def add_scores(self, scores: str, query: str) -> str:
        """Adds to scores, float [B, n, H, T, 16]; the scaled query is float [B, 1, H, T, D]."""
        body = self._body
        if self._kind == "bias":
            return body.add("Add", scores, body.transpose(self._rows("bias"), 0, 1, 4, 2, 3))
        keys = body.transpose(self._rows("keys"), 0, 1, 2, 4, 3)  # [B, n, T, D, 16]
        products = body.add("MatMul", body.transpose(query, 0, 1, 3, 2, 4), keys)  # [B, n, T, H, 16]
        return body.add("Add", scores, body.transpose(products, 0, 1, 3, 2, 4))

    def add_mean(self, states: str, weights: str, sums: str) -> str:
        """Adds the mean by weights [B, n, H, T, 16] with sums [B, 1, H, T, 1] to states [B, 1, H, T, D]."""
        body = self._body
        if self._kind == "bias":
            return states
        products = body.add("MatMul", body.transpose(weights, 0, 1, 3, 2, 4), self._rows("values"))  # [B, n, T, H, D]
        return body.add("Add", states, body.add("Div", body.transpose(body.total(products, 1), 0, 1, 3, 2, 4), sums))

    def _rows(self, part: str) -> str:
        return self._body.add("Gather", f"{self._name}.distances.{part}", self._indices)


class Distances:
    """The distances of all pairs of a query and a key."""

    def __init__(
        self, body: Body, config: TransformerConfig, keys: str, queries: str, query_shape: tuple[int, ...]
    ) -> None:
        """Stores positions of 16 n keys and of queries, int64; the latter are reshaped to [B, 1, T, 1]."""
        self._body, self._config = body, config
        self._indices: str | None = None
        if config.distances != "none":
            center = position_count(config) - 1
            distances = body.add("Sub", body.reshape(keys, 1, -1, 1, LANES), body.reshape(queries, *query_shape))
            indices = body.add("Add", distances, body.integers(center))
            # Padding may lie beyond the longest row.
            indices = body.add("Max", indices, body.integers(0))
            self._indices = body.add("Min", indices, body.integers(2 * center))

    def of(self, name: str) -> LayerDistances | None:
        """Returns the distances with the tables of an attention; None if the model has none."""
        return None if self._indices is None else LayerDistances(self._body, self._config, name, self._indices)
