"""The shape of a JSON document: its fields and their types, for custom resources without a published schema.

A shape is a type, a pattern of the whole text, a list with the shape of each element, or the shapes of all fields.
"""

import re
from typing import Any


def assert_shape(value: Any, shape: Any) -> None:
    """Asserts that a document has a shape, without other fields."""
    if isinstance(shape, dict):
        assert value.keys() == shape.keys()
        for name, inner in shape.items():
            assert_shape(value[name], inner)
    elif isinstance(shape, list):
        assert value
        for item in value:
            assert_shape(item, shape[0])
    elif isinstance(shape, str):
        assert re.fullmatch(shape, value)
    else:
        assert isinstance(value, shape)
