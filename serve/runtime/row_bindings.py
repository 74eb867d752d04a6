"""What a decoder's session reads and writes in a step of R rows: the first R of arrays in this machine's memory.

The rows are the outermost axis, so that binding fewer of them copies nothing. To bind many arrays takes longer than the
rest of a step's Python; therefore it is done once for each R, and what does not depend on R once for all. Used by
`serve.runtime.cpu`; knows neither what the arrays mean nor how long a row is.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class BoundArray(NamedTuple):
    """An array and the name that the graph has for it; a row of it has this shape."""

    name: str
    element: type[np.generic]
    row_shape: tuple[int, ...]
    address: int


class RowBindings:
    """The bindings of a session, as long as the arrays stay where they are."""

    def __init__(self, session: Any, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]) -> None:
        """Binds nothing yet.

        Args:
            session: of ONNX Runtime.
            inputs: what each input reads, [rows, ...], by its name.
            outputs: what each output writes, [rows, ...], by its name; the same memory as an input's writes in place.
        """
        self._session = session
        self._inputs = [_bound(name, array) for name, array in inputs.items()]
        self._outputs = [_bound(name, array) for name, array in outputs.items()]
        self._of_rows: dict[int, Any] = {}

    def of(self, rows: int) -> Any:
        """Returns the binding of a step of R rows."""
        binding = self._of_rows.get(rows)
        if binding is None:
            binding = self._of_rows[rows] = self._bind(rows)
        return binding

    def _bind(self, rows: int) -> Any:
        binding = self._session.io_binding()
        for bind, arrays in ((binding.bind_input, self._inputs), (binding.bind_output, self._outputs)):
            for array in arrays:
                bind(array.name, "cpu", 0, array.element, (rows, *array.row_shape), array.address)
        return binding


def _bound(name: str, array: NDArray[Any]) -> BoundArray:
    return BoundArray(name, array.dtype.type, array.shape[1:], array.ctypes.data)
