"""The few sizes that a device computes with: a size that was seen before needs neither planning nor capture again."""

from bisect import bisect_left


class Buckets:
    """Powers of two times the least size, and the most.

    Attributes:
        sizes: ascending, the last is the most.
    """

    def __init__(self, most: int, least: int = 1) -> None:
        """Makes them.

        Args:
            most: the largest size, positive.
            least: the smallest, unless the largest is smaller.
        """
        sizes = []
        size = least
        while size < most:
            sizes.append(size)
            size *= 2
        self.sizes = (*sizes, most)

    def of(self, size: int) -> int:
        """Returns the smallest bucket that holds a size, which is at most the largest."""
        return self.sizes[bisect_left(self.sizes, size)]
