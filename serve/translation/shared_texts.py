"""What requests that translate the same texts into several targets share: their turn, sentences and source tokens."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, TypeVar

from dragoman.model.tokenizer.tokenizer import TextTokenizer

T = TypeVar("T")


class SharedTexts:
    """The texts of one request with several targets, which runs as one request per target.

    The object stands for the client's turn in fair queuing.

    Attributes:
        targets: as the client names them.
    """

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = targets
        self._results: dict[Hashable, asyncio.Task[Any]] = {}
        self._tokens: dict[TextTokenizer, dict[str, list[int]]] = {}

    async def once(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Returns what the first function with a key makes, or raises its error; the targets end together."""
        if key not in self._results:
            self._results[key] = asyncio.create_task(make())
        result: T = await self._results[key]
        return result

    def encode(self, tokenizer: TextTokenizer, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each source text; a tokenizer encodes each text once."""
        known = self._tokens.setdefault(tokenizer, {})
        new = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(new, tokenizer.encode_all(new), strict=True))
        return [known[text] for text in texts]
