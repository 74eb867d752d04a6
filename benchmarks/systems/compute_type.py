"""What CTranslate2 calls a precision of ours. Knows neither library."""

from typing import Literal

from serve.bundle.manifest import EIGHT_BITS, Precision


def compute_type(precision: Precision) -> Literal["float32", "int8"]:
    """Returns the type that CTranslate2 has beside a precision; its 8 bits have a scale for every row."""
    return "int8" if precision in EIGHT_BITS else "float32"
