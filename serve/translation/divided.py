"""Translates texts together, and finds the one that fails."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

Text = TypeVar("Text")
Result = TypeVar("Result")

# Requests of a window: enough that engines and interpreter wait for no request to end.
REQUESTS = 4


def divide_window(in_flight: int) -> tuple[int, int]:
    """Returns how many requests share a window of texts, and the texts of each."""
    requests = min(REQUESTS, in_flight)
    return requests, in_flight // requests


async def translate_divided(
    translate: Callable[[Sequence[Text]], Awaitable[Sequence[Result]]],
    texts: Sequence[Text],
    is_of_a_text: Callable[[Exception], bool],
) -> AsyncGenerator[Result]:
    """Yields one result per text, translated together; if that fails, one half after the other.

    Args:
        translate: returns one result per text, or raises.
        is_of_a_text: whether a single text may cause an error.

    Raises:
        Exception: that of the first text that fails alone, after the results before it.
    """
    try:
        results = await translate(texts) if texts else ()
    except Exception as error:
        if len(texts) == 1 or not is_of_a_text(error):
            raise
    else:
        for result in results:
            yield result
        return
    middle = len(texts) // 2
    for half in (texts[:middle], texts[middle:]):
        async for result in translate_divided(translate, half, is_of_a_text):
            yield result
